// Which elements of its matrices a thread holds for mma.m16n8k16 with 16-bit operands: PTX ISA, "Matrix Fragments for
// mma.m16n8k16 with floating point type". Elements are counted through a thread's registers, low half first.
#pragma once

namespace hattn::emulated_cuda {

inline constexpr int kMmaM = 16, kMmaN = 8, kMmaK = 16;
inline constexpr int kMmaElementsA = 8, kMmaElementsB = 4, kMmaElementsC = 4;

struct MatrixPosition {
    int row, column;

    bool operator==(const MatrixPosition &) const = default;
};

constexpr int group_of(int lane) {
    return lane >> 2;
}
constexpr int thread_in_group(int lane) {
    return lane % 4;
}

// (m, k)
constexpr MatrixPosition position_in_a(int lane, int i) {
    const bool first_rows = i < 2 || (4 <= i && i < 6);
    return {group_of(lane) + (first_rows ? 0 : 8), thread_in_group(lane) * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}

// (k, n)
constexpr MatrixPosition position_in_b(int lane, int i) {
    return {thread_in_group(lane) * 2 + (i & 1) + (i < 2 ? 0 : 8), group_of(lane)};
}

// (m, n), of C and D
constexpr MatrixPosition position_in_c(int lane, int i) {
    return {group_of(lane) + (i < 2 ? 0 : 8), thread_in_group(lane) * 2 + (i & 1)};
}

// ldmatrix: each register holds two elements of one 8 x 8 matrix, whose row r is at the address that lane
// 8 * matrix + r gives: PTX ISA, "ldmatrix". (row, column) of an element as it is stored.
inline constexpr int kSmallMatrix = 8;

constexpr MatrixPosition position_in_small(int lane, int i, bool transposed) {
    const MatrixPosition at = {group_of(lane), thread_in_group(lane) * 2 + i};
    return transposed ? MatrixPosition{at.column, at.row} : at;
}

}  // namespace hattn::emulated_cuda
