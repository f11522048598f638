// The two loops whose speed is the machine's limit, over the vectors of one instruction set. Each set has a source file
// of its own, compiled with its flags. Keep standard headers with inline code out of those files: what they compile
// must not be shared with files for lesser machines.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace hattn::bench {

struct LimitLoops {
    // One thread multiplies and adds for `rounds` rounds in registers alone; returns a value that depends on all of it.
    float (*multiply_add)(int64_t rounds);
    double flops_per_round;
    // One thread reads `bytes`, a multiple of kReadBlock, once; returns their sum in some order.
    uint64_t (*read)(const void *data, size_t bytes);
};

inline constexpr size_t kReadBlock = 512;  // bytes, at any alignment to 4

const LimitLoops &baseline_loops();
const LimitLoops &avx2_loops();        // needs AVX2 and FMA
const LimitLoops &avx512_loops();      // needs AVX-512F
const LimitLoops &avx512bf16_loops();  // needs AVX512_BF16; multiplies bfloat16 pairs
const LimitLoops &amx_loops();         // needs AMX-BF16, and its registers granted; multiplies bfloat16 matrices

namespace {  // one copy per source file, on purpose

// Independent chains of multiply-adds: latency 4 on 2 units needs 8; 12 is safe on all, and fits into 16 registers
// together with the two operands.
constexpr int kChains = 12;
constexpr int kStepsPerRound = 64;

template<int kBytes>
struct Vectors {
    typedef float Floats __attribute__((vector_size(kBytes)));
    typedef uint64_t Words __attribute__((vector_size(kBytes)));
    typedef uint64_t UnalignedWords __attribute__((vector_size(kBytes), aligned(4), may_alias));
    static constexpr int kLanes = kBytes / 4;
};

template<int kBytes>
float multiply_add(int64_t rounds) {
    using Floats = typename Vectors<kBytes>::Floats;
    // The values stay near 1, far from denormals. volatile: the compiler may not know them.
    volatile float factor_value = 0.999f, term_value = 0.001f;
    Floats factor = Floats{} + factor_value, term = Floats{} + term_value;
    Floats chains[kChains];
    for (int c = 0; c < kChains; ++c) {
        chains[c] = Floats{} + (1.0f + 0.01f * static_cast<float>(c));
    }
    for (int64_t round = 0; round < rounds; ++round) {
        for (int step = 0; step < kStepsPerRound; ++step) {
#pragma GCC unroll 12
            for (int c = 0; c < kChains; ++c) {
                chains[c] = chains[c] * factor + term;
            }
        }
    }
    Floats sum{};
    for (int c = 0; c < kChains; ++c) {
        sum += chains[c];
    }
    float total = 0.0f;
    for (int lane = 0; lane < Vectors<kBytes>::kLanes; ++lane) {
        total += sum[lane];
    }
    return total;
}

template<int kBytes>
uint64_t read(const void *data, size_t bytes) {
    using Words = typename Vectors<kBytes>::Words;
    using Unaligned = typename Vectors<kBytes>::UnalignedWords;
    constexpr int kSums = 8;
    static_assert(kReadBlock % (kSums * kBytes) == 0);
    const auto *vectors = static_cast<const Unaligned *>(data);
    Words sums[kSums] = {};
    for (size_t block = 0; block < bytes / (kSums * kBytes); ++block) {
#pragma GCC unroll 8
        for (int s = 0; s < kSums; ++s) {
            sums[s] += vectors[block * kSums + static_cast<size_t>(s)];
        }
    }
    Words sum{};
    for (int s = 0; s < kSums; ++s) {
        sum += sums[s];
    }
    uint64_t total = 0;
    for (int lane = 0; lane < kBytes / 8; ++lane) {
        total += sum[lane];
    }
    return total;
}

template<int kBytes>
constexpr LimitLoops kLoops = {multiply_add<kBytes>, 2.0 * kStepsPerRound *kChains *Vectors<kBytes>::kLanes,
                               read<kBytes>};

}  // namespace

}  // namespace hattn::bench
