// Merge of partial attention states over disjoint keys, and of the sink (Ye et al., FlashInfer, 2025, section 2.2).
#pragma once

#include <vector>

#include "Halide.h"
#include "softmax_math.h"

namespace hattn::generators {

struct MergeInputs {
    Halide::ImageParam partial_output{Halide::Float(32), 3, "partial_output"};  // (d, r, n)
    Halide::ImageParam partial_lse{Halide::Float(32), 2, "partial_lse"};        // (r, n) natural
    Halide::ImageParam sinks{Halide::Float(32), 1, "sinks"};                    // (h) natural; -inf: none

    Halide::Param<int> heads{"heads"};

    std::vector<Halide::Argument> arguments() const;
};

// For devices. `one_loop_nest`: where a pipeline's outputs have to come from one loop nest, output(d, i, h) is the
// Tuple(output, lse) with the lse of a row repeated along d, and lse is undefined. `head`: rows of the states may be
// read so many elements wide, of which those past the last repeat it; 0: only those that exist. `block`: states are
// taken so many at a time, those past the last with weight 0; 0: one after the other.
struct MergeOptions {
    bool one_loop_nest = false;
    int head = 0;
    int block = 0;
    Exp2 exp2 = exp2_nonpositive;  // of weights
};

// output(d, i, h) and lse(i, h), both from 0, rows counted through the heads first: r = i * heads + h.
struct MergeStages {
    explicit MergeStages(const MergeInputs &inputs, const MergeOptions &options = {});

    Halide::Var d{"d"}, r{"r"}, n{"n"}, i{"i"}, h{"h"};
    Halide::RDom over_states;  // (state), with blocks (state of a block, block)

    Halide::Func maximum;  // (r) natural units, so that a single state keeps its lse to the bit
    Halide::Func weights;  // (r, n) e^(lse_n - maximum)
    Halide::Func element;  // (d, r, n) of a state's output
    Halide::Func total;    // (r) sum of weights
    Halide::Func sum;      // (d, r) weighted outputs
    Halide::Func output;   // (d, i, h)
    Halide::Func lse;      // (i, h)
};

}  // namespace hattn::generators
