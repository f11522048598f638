// The layout of mma's operands against another source than the one it was written from, and products of matrices.
#include "matrix_fragments.h"

#include <gtest/gtest.h>

#include <bit>

#include "half_floats.h"
#include "small_kernel.h"

namespace {

using namespace hattn::emulated_cuda;

// As CUTLASS publishes them for SM80_16x8x16_F32F16F16F32_TN (include/cute/atom/mma_traits_sm80.hpp): strides of
// (lane % 4, lane / 4) and of the bits of a value's number, into a matrix whose first index counts first.
struct PublishedLayout {
    int lane_strides[2];
    int value_strides[3];
    int first_extent;
};
constexpr PublishedLayout kA = {{32, 1}, {16, 8, 128}, 16};  // (m, k)
constexpr PublishedLayout kB = {{16, 1}, {8, 64, 0}, 8};     // (n, k)
constexpr PublishedLayout kC = {{32, 1}, {16, 8, 0}, 16};    // (m, n)

// Its first and second index.
MatrixPosition published(const PublishedLayout &layout, int lane, int i) {
    int index = lane % 4 * layout.lane_strides[0] + lane / 4 * layout.lane_strides[1];
    for (int bit = 0; bit < 3; ++bit) {
        index += (i >> bit & 1) * layout.value_strides[bit];
    }
    return {index % layout.first_extent, index / layout.first_extent};
}

TEST(MatrixFragments, AreThoseThatCutlassPublishes) {
    for (int lane = 0; lane < kLanes; ++lane) {
        for (int i = 0; i < kMmaElementsA; ++i) {
            EXPECT_EQ(position_in_a(lane, i), published(kA, lane, i)) << lane << ' ' << i;
        }
        for (int i = 0; i < kMmaElementsB; ++i) {
            const MatrixPosition nk = published(kB, lane, i);
            EXPECT_EQ(position_in_b(lane, i), (MatrixPosition{nk.column, nk.row})) << lane << ' ' << i;
        }
        for (int i = 0; i < kMmaElementsC; ++i) {
            EXPECT_EQ(position_in_c(lane, i), published(kC, lane, i)) << lane << ' ' << i;
        }
    }
}

// Per lane 4 registers of A, 2 of B, 4 of C, and 4 for the result. Small integers, so that sums are exact.
constexpr int kRegistersOfLane = 14;

int element_of_a(int m, int k) {
    return (3 * m + k) % 7 - 3;
}
int element_of_b(int k, int n) {
    return (k + 5 * n) % 9 - 4;
}
int element_of_c(int m, int n) {
    return m - 2 * n;
}

template<typename Bits>
std::vector<uint32_t> operands(Bits bits_of) {
    std::vector<uint32_t> memory(kLanes * kRegistersOfLane);
    for (int lane = 0; lane < kLanes; ++lane) {
        uint32_t *registers = &memory[static_cast<size_t>(lane) * kRegistersOfLane];
        const auto set_half = [&](int first, int i, int value) {
            registers[first + i / 2] |= uint32_t{bits_of(static_cast<float>(value))} << (i % 2 * 16);
        };
        for (int i = 0; i < kMmaElementsA; ++i) {
            const MatrixPosition at = position_in_a(lane, i);
            set_half(0, i, element_of_a(at.row, at.column));
        }
        for (int i = 0; i < kMmaElementsB; ++i) {
            const MatrixPosition at = position_in_b(lane, i);
            set_half(4, i, element_of_b(at.row, at.column));
        }
        for (int i = 0; i < kMmaElementsC; ++i) {
            const MatrixPosition at = position_in_c(lane, i);
            registers[6 + i] = std::bit_cast<uint32_t>(static_cast<float>(element_of_c(at.row, at.column)));
        }
    }
    return memory;
}

std::string product_of(const std::string &type) {
    std::string body = "mul.wide.u32 %rd2, %r1, 56;\nadd.s64 %rd3, %rd1, %rd2;\n";
    for (int i = 0; i < 10; ++i) {
        body += "ld.global.b32 %r" + std::to_string(2 + i) + ", [%rd3+" + std::to_string(4 * i) + "];\n";
    }
    body += "mma.sync.aligned.m16n8k16.row.col.f32." + type + "." + type +
            ".f32 {%r12, %r13, %r14, %r15}, {%r2, %r3, %r4, %r5}, {%r6, %r7}, {%r8, %r9, %r10, %r11};\n";
    for (int i = 0; i < 4; ++i) {
        body += "st.global.b32 [%rd3+" + std::to_string(40 + 4 * i) + "], %r" + std::to_string(12 + i) + ";\n";
    }
    return body;
}

void expect_products(const std::string &type, std::vector<uint32_t> memory) {
    run(product_of(type), memory);
    for (int lane = 0; lane < kLanes; ++lane) {
        for (int i = 0; i < kMmaElementsC; ++i) {
            const auto [m, n] = position_in_c(lane, i);
            int sum = element_of_c(m, n);
            for (int k = 0; k < kMmaK; ++k) {
                sum += element_of_a(m, k) * element_of_b(k, n);
            }
            const uint32_t result = memory[static_cast<size_t>(lane * kRegistersOfLane + 10 + i)];
            EXPECT_EQ(std::bit_cast<float>(result), static_cast<float>(sum)) << type << ' ' << m << ' ' << n;
        }
    }
}

TEST(MatrixProduct, IsExactWhereNumbersAre) {
    expect_products("f16", operands(float16_bits));
    expect_products("bf16", operands(bfloat16_bits));
}

// Every lane stores its number's row of eight elements, and loads four matrices of them.
std::vector<uint32_t> loaded_matrices(const std::string &modifier) {
    std::string body = "shl.b32 %r2, %r1, 4;\ncvt.u64.u32 %rd2, %r2;\nadd.s64 %rd3, %rd1, %rd2;\n";
    for (int i = 0; i < 4; ++i) {
        const std::string n = std::to_string(4 * i);
        body += "ld.global.b32 %r3, [%rd3+" + n + "];\nst.shared.b32 [%rd2+" + n + "], %r3;\n";
    }
    body += "bar.sync 0;\nldmatrix.sync.aligned.m8n8.x4" + modifier + ".shared.b16 {%r4, %r5, %r6, %r7}, [%r2];\n";
    for (int i = 0; i < 4; ++i) {
        body += "st.global.b32 [%rd3+" + std::to_string(4 * i) + "], %r" + std::to_string(4 + i) + ";\n";
    }
    std::vector<uint32_t> memory(kLanes * 4);
    for (uint32_t i = 0; i < memory.size(); ++i) {
        memory[i] = 2 * i | (2 * i + 1) << 16;  // element 8 * lane + column
    }
    run(body, memory, {.shared_bytes = kLanes * 16});
    return memory;
}

// PTX ISA, "ldmatrix": thread t receives elements 2 * (t % 4) and the next of row t / 4, of column t / 4 if transposed.
TEST(LoadMatrix, GivesEachLaneItsPairs) {
    const std::vector<uint32_t> plain = loaded_matrices(""), transposed = loaded_matrices(".trans");
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
        for (uint32_t matrix = 0; matrix < 4; ++matrix) {
            const uint32_t first = 64 * matrix + 8 * (lane / 4) + 2 * (lane % 4);
            EXPECT_EQ(plain[4 * lane + matrix], first | (first + 1) << 16) << lane << ' ' << matrix;
            const uint32_t above = 64 * matrix + 8 * (2 * (lane % 4)) + lane / 4;
            EXPECT_EQ(transposed[4 * lane + matrix], above | (above + 8) << 16) << lane << ' ' << matrix;
        }
    }
}

}  // namespace
