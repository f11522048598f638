// Rows between float32 and the storage types: queries and outputs around kernels, which compute in float32, and rows
// that are appended to a cache.
#pragma once

#include <vector>

#include "Halide.h"

namespace hattn::generators {

// 16 bits to float32: output(d, i, h).
struct Widen {
    Widen();

    Halide::Param<int> type;  // HATTN_FLOAT16 or HATTN_BFLOAT16
    Halide::ImageParam rows;  // (d, i, h) uint16
    Halide::Var d{"d"}, i{"i"}, h{"h"};
    Halide::Func output;

    std::vector<Halide::Argument> arguments() const;
};

// float32 to 16 bits, to nearest even: output(d, i, h) uint16.
struct Narrow {
    Narrow();

    Halide::Param<int> type;  // as above
    Halide::ImageParam rows;  // (d, i, h) float32
    Halide::Var d{"d"}, i{"i"}, h{"h"};
    Halide::Func output;

    std::vector<Halide::Argument> arguments() const;
};

// The scale of every kScaleBlock elements of a row, with which the largest becomes the largest integer:
// output(block, i). Infinities count as the largest finite number; of a block with a NaN the scale is one.
struct BlockScales {
    BlockScales();

    Halide::Param<int> type;  // HATTN_INT8 or HATTN_INT4
    Halide::ImageParam rows;  // (d, i) float32
    Halide::Var block{"block"}, i{"i"};
    Halide::RDom in_block;
    Halide::Func largest;  // (block, i) int32, the bits of the largest magnitude
    Halide::Func output;

    std::vector<Halide::Argument> arguments() const;
};

// float32 to integers, to nearest even and within +-127 or +-7: output(byte, i) uint8. An integer n stands for
// n * channel_scales(d) * block_scales(d / kScaleBlock, i). A scale of zero makes zeros, and so does a NaN.
struct Quantize {
    Quantize();

    Halide::Param<int> type;            // HATTN_INT8 or HATTN_INT4
    Halide::ImageParam rows;            // (d, i) float32
    Halide::ImageParam channel_scales;  // (d), any stride
    Halide::ImageParam block_scales;    // (block, i), any strides
    Halide::Var d{"d"}, byte{"byte"}, i{"i"};
    Halide::Func integers;  // (d, i) int32; 0 past the last d
    Halide::Func output;

    std::vector<Halide::Argument> arguments() const;
};

}  // namespace hattn::generators
