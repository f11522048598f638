// How the library keeps the code of its kernels for devices, text of OpenCL C or PTX that is mostly repetition: packed,
// until a driver is to load it. Shared with the generators, which pack it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hattn {

// Packed code is one of these, and then the text, with the null behind it, as zlib packs it.
struct PackedCodeHeader {
    uint32_t text_bytes;
};

// "" where it is not sound.
std::string unpack_device_code(const void *packed, size_t bytes);

}  // namespace hattn
