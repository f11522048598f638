// How matrices lie in shared memory that a warpgroup's instructions read: PTX ISA, "Asynchronous Warpgroup Level Matrix
// Shared Memory Layout", with swizzling of 128 bytes.
#pragma once

#include <cstdint>

namespace hattn::schedules::cuda {

// Rows of 128 bytes, one after the other, in which blocks of 16 bytes change places: block b of row r is at b ^ (r %
// 8). Longer rows are cut into parts of 128 bytes, the first ones of all rows, then the second ones.
inline constexpr int kSwizzledRow = 128, kSwizzledBlock = 16, kSwizzledRows = 8;
inline constexpr int kSwizzledElements = kSwizzledRow / 2;  // of 16 bits, of a part of a row
// A matrix begins at a multiple of so many bytes.
inline constexpr int kSwizzledAlignment = kSwizzledRows * kSwizzledRow;

constexpr int whole_swizzled_rows(int elements) {
    return (elements + kSwizzledElements - 1) / kSwizzledElements * kSwizzledElements;
}

// The descriptor of a matrix that begins at an address, of so many rows: "Matrix Descriptor Format". Of a matrix whose
// rows are summed over, parts are so many rows apart; of the others an instruction takes no more than one part.
constexpr uint64_t matrix_descriptor(uint32_t address, int rows) {
    constexpr uint64_t kSwizzle128 = 1;
    const auto units = [](uint64_t bytes) { return bytes / 16; };
    return units(address) | units(static_cast<uint64_t>(rows) * kSwizzledRow) << 16 | units(kSwizzledAlignment) << 32 |
           kSwizzle128 << 62;
}

}  // namespace hattn::schedules::cuda
