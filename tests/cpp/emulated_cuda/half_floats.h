// Numbers of 16 bits, as bits. To nearest even, as cvt.rn does.
#pragma once

#include <bit>
#include <cstdint>

namespace hattn::emulated_cuda {

inline float float16_value(uint16_t bits) {
    return static_cast<float>(std::bit_cast<_Float16>(bits));
}

inline uint16_t float16_bits(float value) {
    return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}

inline float bfloat16_value(uint16_t bits) {
    return std::bit_cast<float>(uint32_t{bits} << 16);
}

inline uint16_t bfloat16_bits(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    constexpr uint16_t kNan = 0x7fff;
    return value != value ? kNan : static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1u)) >> 16);
}

}  // namespace hattn::emulated_cuda
