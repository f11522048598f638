// Types as instructions name them.
#pragma once

#include <string>
#include <type_traits>

namespace hattn::emulated_cuda {

// u8, s32, f32
template<typename T>
std::string type_name() {
    const char *kind = std::is_floating_point_v<T> ? "f" : std::is_signed_v<T> ? "s" : "u";
    return kind + std::to_string(sizeof(T) * 8);
}

}  // namespace hattn::emulated_cuda
