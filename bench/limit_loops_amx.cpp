// AMX: products of bfloat16 matrices, summed up in float32.
#include <immintrin.h>

#include "limit_loops.h"

namespace hattn::bench {

namespace {

constexpr int kSide = 16, kDepth = 32;  // of a product: sums, and elements of each

// What LDTILECFG loads, of Intel's Architecture Instruction Set Extensions, "Tile Architecture".
struct Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {kSide, kSide, kSide, kSide, kSide, kSide, kSide, kSide};
};

float multiply_add_matrices(int64_t rounds) {
    const Configuration configuration;
    _tile_loadconfig(&configuration);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (int64_t round = 0; round < rounds; ++round) {
        for (int step = 0; step < kStepsPerRound; ++step) {
            _tile_dpbf16ps(0, 4, 5);
            _tile_dpbf16ps(1, 4, 5);
            _tile_dpbf16ps(2, 4, 5);
            _tile_dpbf16ps(3, 4, 5);
        }
    }
    float sums[kSide * kSide];
    _tile_stored(0, sums, 64);
    _tile_release();
    return sums[0];
}

}  // namespace

const LimitLoops &amx_loops() {
    constexpr int kSums = 4;
    static constexpr LimitLoops loops = {multiply_add_matrices, 2.0 * kStepsPerRound * kSums * kSide * kSide * kDepth,
                                         read<64>};
    return loops;
}

}  // namespace hattn::bench
