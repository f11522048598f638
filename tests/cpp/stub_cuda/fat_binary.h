// What is in a fat binary, from its headers (as fatbinary of the CUDA Toolkit writes them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace hattn::stub_cuda {

template<typename T>
T read_at(const void *data, size_t offset) {
    T value;
    std::memcpy(&value, static_cast<const std::byte *>(data) + offset, sizeof(value));
    return value;
}

inline bool is_fat_binary(const void *data) {
    return read_at<uint32_t>(data, 0) == 0xBA55ED50u;
}

// What a driver takes for a GPU: machine code for the latest architecture of its generation that is not later than it
// is, else PTX for an architecture that is not later. Such as "sm_80" and "ptx_80"; "" if it finds nothing.
inline std::string image_for(const void *data, int capability) {
    constexpr int kPtx = 1, kElf = 2;
    constexpr size_t kCapabilityAt = 28;  // in an image's header
    const size_t end = read_at<uint16_t>(data, 6) + static_cast<size_t>(read_at<uint64_t>(data, 8));
    int elf = 0, ptx = 0;
    for (size_t at = read_at<uint16_t>(data, 6); at < end;
         at += read_at<uint32_t>(data, at + 4) + static_cast<size_t>(read_at<uint64_t>(data, at + 8))) {
        const int kind = read_at<uint16_t>(data, at),
                  of = static_cast<int>(read_at<uint32_t>(data, at + kCapabilityAt));
        if (kind == kElf && of / 10 == capability / 10 && of <= capability && of > elf) {
            elf = of;
        } else if (kind == kPtx && of <= capability && of > ptx) {
            ptx = of;
        }
    }
    return elf > 0 ? "sm_" + std::to_string(elf) : ptx > 0 ? "ptx_" + std::to_string(ptx) : "";
}

}  // namespace hattn::stub_cuda
