// Types as instructions name them.
#pragma once

#include <cstdint>
#include <string>

namespace hattn::emulated_cuda {

template<typename T>
std::string type_name();

template<>
inline std::string type_name<uint8_t>() {
    return "u8";
}
template<>
inline std::string type_name<int8_t>() {
    return "s8";
}
template<>
inline std::string type_name<uint16_t>() {
    return "u16";
}
template<>
inline std::string type_name<int16_t>() {
    return "s16";
}
template<>
inline std::string type_name<uint32_t>() {
    return "u32";
}
template<>
inline std::string type_name<int32_t>() {
    return "s32";
}
template<>
inline std::string type_name<uint64_t>() {
    return "u64";
}
template<>
inline std::string type_name<int64_t>() {
    return "s64";
}
template<>
inline std::string type_name<float>() {
    return "f32";
}

}  // namespace hattn::emulated_cuda
