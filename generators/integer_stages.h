// Of products of integers, see IntegerPairs: members of ScoreStages and AttentionStages, in whose coordinates they are,
// defined in_integers.
#pragma once

#include "Halide.h"

namespace hattn::generators {

struct IntegerScores {
    Halide::RDom over_integers;   // (side, vector, step) of IntegerPairs
    Halide::RDom over_step;       // (side, vector)
    Halide::RDom over_scaled;     // (step)
    Halide::RDom over_positions;  // of a row
    // query_integers are multiplied in place of query_steps, in query_units.
    Halide::Func query_peak;      // (r) the largest of query_steps
    Halide::Func query_unit;      // (r)
    Halide::Func query_integers;  // (r, position) int16
    Halide::Func step_sums;       // (lane, r, k, step, c) int32, of the products of a step
    Halide::Func lane_integers;   // (lane, r, k, c) likewise of all steps, for keys of one scale
    Halide::Func lane_floats;     // (lane, r, k, c) the same
};

struct IntegerValues {
    // Weights are integers too, in weight_units, and d counts sums of IntegerPairs.
    Halide::Var block{"block"};       // of elements that share a scale
    Halide::Expr value_blocks;        // of a row that have scales of their own
    Halide::Expr dense_value_scales;  // a key's lie side by side
    Halide::Expr value_scale_stride;  // from key to key
    Halide::RDom over_scales;         // (key of a granule, granule, block) of a chunk
    Halide::Func value_scales;        // (k, block, c)
    Halide::Func largest_scale;       // (c)
    Halide::Func weight_unit;         // (r, c) with the scale
    Halide::Func weight_rate;         // (r, c) weight_units in 1
    Halide::Func weight_integers;     // (k, r, block, c) int16, weights by the scale of values
    Halide::Func value_integers;      // (side, lane, panel, pair, granule, c) int16, at positions
    Halide::Func integer_output;      // (r, lane, panel, c) int32, weight_integers . value_pairs
};

}  // namespace hattn::generators
