// AVX512_BF16: products of bfloat16 pairs, summed up in float32.
#include <immintrin.h>

#include "limit_loops.h"

namespace hattn::bench {

namespace {

float multiply_add_pairs(int64_t rounds) {
    // The products are subnormal and count as zeros, so that the sums stay what they are. volatile: the compiler may
    // not know them.
    volatile float factor_value = 1e-20f;
    const __m512bh factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(factor_value), _mm512_set1_ps(factor_value));
    __m512 chains[kChains];
    for (int c = 0; c < kChains; ++c) {
        chains[c] = _mm512_set1_ps(1.0f + 0.01f * static_cast<float>(c));
    }
    for (int64_t round = 0; round < rounds; ++round) {
        for (int step = 0; step < kStepsPerRound; ++step) {
#pragma GCC unroll 12
            for (int c = 0; c < kChains; ++c) {
                chains[c] = _mm512_dpbf16_ps(chains[c], factor, factor);
            }
        }
    }
    __m512 sum = _mm512_setzero_ps();
    for (int c = 0; c < kChains; ++c) {
        sum = _mm512_add_ps(sum, chains[c]);
    }
    return _mm512_cvtss_f32(sum);
}

}  // namespace

const LimitLoops &avx512bf16_loops() {
    static constexpr LimitLoops loops = {multiply_add_pairs, 4.0 * kStepsPerRound * kChains * 16, read<64>};
    return loops;
}

}  // namespace hattn::bench
