// Attention in two kernels with the weights of all keys in memory between them: a pair of matrix products, of which
// each is free to run at its own best shape.
#pragma once

#include <vector>

#include "attention_stages.h"

namespace hattn::generators {

// First kernel: scores, row statistics, and the scores as weights. j is a key of the range.
struct UnfusedScores : ScoreStages {
    UnfusedScores(const AttentionInputs &inputs, const StageOptions &options);

    Halide::Var j{"j"};
    Halide::RDom over_keys;  // (k, c), whole chunks: keys past the last are masked

    Halide::Func row_max;       // (r) of logits
    Halide::Func row_sum;       // (r) of exponentials
    Halide::Func exponentials;  // (r, k, c) 2^(logits - row_max), 0 where masked
    Halide::Func weights;       // (j, r) the same, as they are stored: without padding
    Halide::Func maximum, sum;  // (r) row_max and row_sum, as they are stored
    // With one_loop_nest weights is the Tuple of the three.
};

struct UnfusedValueInputs : AttentionInputs {
    explicit UnfusedValueInputs(const AttentionInputs &inputs);

    Halide::ImageParam weights;  // (j, r) outputs of the first kernel
    Halide::ImageParam maximum;  // (r)
    Halide::ImageParam sum;      // (r)

    std::vector<Halide::Argument> arguments() const;
};

// Second kernel: weighted values, in chunks of keys that stay in cache for all rows.
struct UnfusedValues {
    UnfusedValues(const UnfusedValueInputs &inputs, const StageOptions &options);

    Halide::Var r{"r"}, d{"d"}, k{"k"}, c{"c"};
    Halide::Var slot{"slot"}, granule{"granule"};  // key = granule * kGranuleKeys + slot, in its chunk
    Halide::Expr chunk_keys, chunk_granules;       // of a chunk
    Halide::RDom over_rows;                        // rows of the tile; defined if a hook can hide keys
    Halide::RDom over_keys;                        // (slot, granule) of the keys of a chunk
    Halide::RDom over_chunks;
    Halide::RDom over_lines;  // (cache line of a row, key of a chunk); defined with fetch_chunk

    Halide::Func row_weights;   // (r, k, c) of a chunk, 0 past the last key
    Halide::Func fetched;       // (c) 0; asks for the value rows of the next chunk; defined with fetch_chunk
    Halide::Func key_seen;      // (k, c) 1 if any row of the tile sees the key; defined if a hook can hide keys
    Halide::Func chunk_value;   // (d, slot, granule, c) value rows; 0 for keys no row sees, whatever they hold
    Halide::Func chunk_output;  // (r, d, c) weights . values
    Halide::Func state;         // (r, d) unnormalised output, updated over chunks
    Halide::Func normaliser;    // (r) Tuple(factor on state, lse)
    Halide::Func output;        // (d, r); with one_loop_nest Tuple(output, lse)
    Halide::Func lse;           // (r) natural, with the sink

    bool hides_keys = false;
    bool fetches_chunk = false;
    bool any_storage = false;
    bool whole_heads = false;  // there are no such kernels
    Halide::Param<int> value_type;  // used with any_storage
};

}  // namespace hattn::generators
