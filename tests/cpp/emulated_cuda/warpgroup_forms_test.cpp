// Products of a warpgroup on the emulator: which elements its instructions take, and what they need around them.
#include <gtest/gtest.h>

#include <bit>

#include "fault.h"
#include "half_floats.h"
#include "matrix_fragments.h"
#include "small_kernel.h"

namespace hattn::emulated_cuda {

namespace {

constexpr int kThreads = 128, kRows = 64, kDepth = 16, kColumns = 80;
constexpr int kSums = kColumns / 2;              // of a thread
constexpr uint32_t kPartBytes = kColumns * 128;  // of a matrix, in rows of 64 elements
constexpr uint32_t kMatrixBytes = 2 * kPartBytes;
constexpr uint32_t kFirstB = kMatrixBytes;

int element_of_a(int m, int k) {
    return (3 * m + 5 * k) % 13 - 6;
}
int element_of_b(int k, int n) {
    return (7 * k + 2 * n) % 11 - 5;
}
int element_of_d(int m, int n) {
    return m - 3 * n;
}

// CUTLASS's Swizzle<3, 4, 3> (cute/swizzle.hpp): bits 4 to 6 of a byte's offset, exclusive-or'd with bits 7 to 9.
uint32_t swizzled(uint32_t bytes) {
    constexpr uint32_t kBits = 3, kBase = 4, kShift = 3;
    return bytes ^ ((bytes & (((1u << kBits) - 1) << (kBase + kShift))) >> kShift);
}

// Where an element is of a matrix of rows of 128 bytes (cute/arch/mma_sm90_desc.hpp, Layout_K_SW128 and, with rows
// summed over, Layout_MN_SW128).
uint32_t place(int row, int element) {
    return swizzled(static_cast<uint32_t>(128 * row + 2 * element));
}

// Start, leading and stride byte offset, swizzling of 128 bytes.
std::string descriptor(uint32_t start, uint32_t leading) {
    return std::to_string(uint64_t{start >> 4} | uint64_t{leading >> 4} << 16 | uint64_t{1024 >> 4} << 32 |
                          uint64_t{1} << 62);
}

// Shared memory as it is to be, in words, which the threads copy there; then what each thread starts from.
struct Operands {
    std::vector<uint32_t> shared = std::vector<uint32_t>(2 * kMatrixBytes / 4), of_threads;

    void put(uint32_t byte, int value) {
        shared[byte / 4] |= uint32_t{float16_bits(static_cast<float>(value))} << (byte % 4 * 8);
    }
};

Operands operands(bool b_over_rows, int first_element) {
    Operands all;
    for (int k = 0; k < kDepth; ++k) {
        for (int m = 0; m < kRows; ++m) {
            all.put(place(m, first_element + k), element_of_a(m, k));
        }
        for (int n = 0; n < kColumns; ++n) {
            const uint32_t at = b_over_rows ? static_cast<uint32_t>(n / 64) * kPartBytes + place(k, n % 64)
                                            : place(n, first_element + k);
            all.put(kFirstB + at, element_of_b(k, n));
        }
    }
    for (int thread = 0; thread < kThreads; ++thread) {
        const int warp = thread / 32, lane = thread % 32;
        for (int i = 0; i < 4; ++i) {  // registers of A
            const auto low = position_in_a(lane, 2 * i), high = position_in_a(lane, 2 * i + 1);
            const auto bits = [&](const MatrixPosition &at) {
                return uint32_t{float16_bits(static_cast<float>(element_of_a(16 * warp + at.row, at.column)))};
            };
            all.of_threads.push_back(bits(low) | bits(high) << 16);
        }
        for (int i = 0; i < kSums; ++i) {
            const auto at = position_in_c(lane, i % 4);
            const int d = element_of_d(16 * warp + at.row, 8 * (i / 4) + at.column);
            all.of_threads.push_back(std::bit_cast<uint32_t>(static_cast<float>(d)));
        }
    }
    return all;
}

constexpr int kOfThread = 4 + kSums;  // words

// %rd3: where the thread's words are; %r4 to %r7 registers of A, %r8 and on its sums.
std::string loads() {
    const std::string words = std::to_string(2 * kMatrixBytes / 4);
    std::string body = "mov.b32 %r2, %r1;\n$copy:\nmul.wide.u32 %rd2, %r2, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"
                       "ld.global.b32 %r3, [%rd3];\nst.shared.b32 [%rd2], %r3;\nadd.s32 %r2, %r2, " +
                       std::to_string(kThreads) + ";\nsetp.lt.u32 %p1, %r2, " + words + ";\n@%p1 bra $copy;\n" +
                       "mul.lo.u32 %r2, %r1, " + std::to_string(4 * kOfThread) + ";\nadd.s32 %r2, %r2, " +
                       std::to_string(2 * kMatrixBytes) + ";\nmul.wide.u32 %rd2, %r2, 1;\nadd.s64 %rd3, %rd1, %rd2;\n";
    for (int i = 0; i < kOfThread; ++i) {
        body += "ld.global.b32 %r" + std::to_string(4 + i) + ", [%rd3+" + std::to_string(4 * i) + "];\n";
    }
    return body;
}

std::string sums() {
    std::string list;
    for (int i = 0; i < kSums; ++i) {
        list += (i ? ", %r" : "{%r") + std::to_string(8 + i);
    }
    return list + "}";
}

std::string stores() {
    std::string body;
    for (int i = 0; i < kSums; ++i) {
        body += "st.global.b32 [%rd3+" + std::to_string(4 * (4 + i)) + "], %r" + std::to_string(8 + i) + ";\n";
    }
    return body;
}

constexpr const char *kBefore = "fence.proxy.async.shared::cta;\nbar.sync 0;\nwgmma.fence.sync.aligned;\n";
constexpr const char *kAfter = "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";

std::string product(bool a_in_memory, bool b_over_rows, bool adds, int first_element) {
    const auto bytes = static_cast<uint32_t>(2 * first_element);
    std::string body = "mov.b64 %rd4, " + descriptor(bytes, 0) + ";\nmov.b64 %rd5, " +
                       descriptor(kFirstB + (b_over_rows ? 0 : bytes), kPartBytes) + ";\n";
    return body + "wgmma.mma_async.sync.aligned.m64n80k16.f32.f16.f16 " + sums() + ", " +
           (a_in_memory ? "%rd4" : "{%r4, %r5, %r6, %r7}") + ", %rd5, " + (adds ? "1" : "0") + ", 1, 1, " +
           (a_in_memory ? "0, " : "") + (b_over_rows ? "1" : "0") + ";\n";
}

std::vector<uint32_t> memory_of(const Operands &all) {
    std::vector<uint32_t> memory = all.shared;
    memory.insert(memory.end(), all.of_threads.begin(), all.of_threads.end());
    return memory;
}

TEST(WarpgroupProduct, IsExactWhereNumbersAre) {
    for (const bool a_in_memory : {false, true}) {
        for (const bool b_over_rows : {false, true}) {
            for (const bool adds : {false, true}) {
                for (const int first_element : {0, 16, 48}) {  // of 64 that have a part of a row
                    std::vector<uint32_t> memory = memory_of(operands(b_over_rows, first_element));
                    run(loads() + kBefore + product(a_in_memory, b_over_rows, adds, first_element) + kAfter + stores(),
                        memory, {.threads = kThreads, .shared_bytes = 2 * kMatrixBytes});
                    for (int thread = 0; thread < kThreads; ++thread) {
                        for (int i = 0; i < kSums; ++i) {
                            const auto at = position_in_c(thread % 32, i % 4);
                            const int m = 16 * (thread / 32) + at.row, n = 8 * (i / 4) + at.column;
                            int expected = adds ? element_of_d(m, n) : 0;
                            for (int k = 0; k < kDepth; ++k) {
                                expected += element_of_a(m, k) * element_of_b(k, n);
                            }
                            const size_t word = 2 * kMatrixBytes / 4 + static_cast<size_t>(thread * kOfThread + 4 + i);
                            ASSERT_EQ(std::bit_cast<float>(memory[word]), static_cast<float>(expected))
                                << a_in_memory << b_over_rows << adds << ' ' << first_element << ": " << m << ' ' << n;
                        }
                    }
                }
            }
        }
    }
}

TEST(WarpgroupProduct, IsMissedWithoutWhatItNeeds) {
    const std::string multiplied = product(true, false, true, 0), commit = "wgmma.commit_group.sync.aligned;\n",
                      wait = "wgmma.wait_group.sync.aligned 0;\n";
    const std::string unaligned = std::string(multiplied).replace(multiplied.find("mov.b64 %rd4, ") + 14, 1, "9");
    struct {
        std::string body;
        const char *message;
    } const runs[] = {
        {kBefore + multiplied + kAfter, ""},
        {"bar.sync 0;\nwgmma.fence.sync.aligned;\n" + multiplied + kAfter, "no fence.proxy.async"},
        {"bar.sync 0;\nfence.proxy.async.shared::cta;\nwgmma.fence.sync.aligned;\n" + multiplied + kAfter,
         "no fence.proxy.async"},
        {"fence.proxy.async.shared::cta;\nwgmma.fence.sync.aligned;\n" + multiplied + kAfter, ""},
        {"fence.proxy.async.shared::cta;\nbar.sync 0;\n" + multiplied + kAfter, "without a wgmma.fence"},
        {kBefore + multiplied + commit, "nobody has waited for"},
        {kBefore + multiplied + commit + "bar.sync 0;\n" + wait, "a barrier is passed"},
        {kBefore + multiplied + commit + "add.s32 %r8, %r8, 1;\n" + wait, "nobody has waited for"},
        {kBefore + multiplied + wait, "in no group"},
        {kBefore + unaligned + kAfter, "swizzling"},
        {kBefore + std::string("setp.lt.u32 %p2, %r1, 5;\n@%p2 ") + multiplied.substr(multiplied.find("wgmma")) +
             kAfter,
         "not all threads"},
    };
    for (const auto &[body, message] : runs) {
        std::vector<uint32_t> memory = memory_of(operands(false, 0));
        std::string found;
        try {
            run(loads() + body + stores(), memory, {.threads = kThreads, .shared_bytes = 2 * kMatrixBytes});
        } catch (const Fault &fault) {
            found = fault.what();
        }
        // Without a barrier another warp's words are not there yet, or there is a race.
        const bool needs_barrier = body.find("bar.sync") == std::string::npos;
        EXPECT_TRUE(needs_barrier                       ? !found.empty()
                    : std::string_view(message).empty() ? found.empty()
                                                        : found.find(message) != std::string::npos)
            << found << "\n"
            << body;
    }
}

}  // namespace

}  // namespace hattn::emulated_cuda
