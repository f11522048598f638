// Of products of matrices: members of ScoreStages and AttentionStages, in whose coordinates they are, defined with
// in_matrices.
#pragma once

#include "Halide.h"

namespace hattn::generators {

struct MatrixScores {
    Halide::RDom over_dim_blocks;                                // (element of a block, block)
    Halide::Var term{"term"};                                    // of bfloat16_terms
    Halide::Var band{"band"};                                    // of joined_rows rows
    Halide::Expr filled_bands;                                   // those that have rows; defined in_bands
    Halide::Var row_block{"row_block"}, key_block{"key_block"};  // of kMatrixColumns rows, of kMatrixDepth keys
    // (row_block, key_block of a chunk, c) whether limits let any of the joined_rows that the block's are of see any of
    // the keys, of which later rows see no fewer on the right and no more on the left.
    Halide::Func block_seen;
    Halide::Func seen_blocks;    // (row_block, c) key blocks up to the last that any of these rows sees
    Halide::Func unseen_blocks;  // (band, c) those before the first that any of its rows sees; defined in_bands
    Halide::RDom over_copies;    // (0), of chunks whose keys are copied; defined with keys_in_place
    Halide::Func key_terms;      // (d, term, k, c) of key_rows; defined with several bfloat16_terms
};

struct MatrixValues {
    Halide::RDom over_key_blocks;  // (key of a block, block) of the keys of a chunk, in place of over_key_pairs
    Halide::Func weight_rows;      // (k, r, term, c) weights, in place of weight_pairs
    Halide::Func panel_output;     // (r, lane, panel, c) weights . values; not defined in_bands,
                                   // whose chunk_output is of value_rows (k, d, term, c) and weight_pairs
    Halide::RDom over_elements;
    Halide::Func not_finite;  // (r) 0 or a NaN; both defined with leaves_not_finite
};

}  // namespace hattn::generators
