// The arguments every attention kernel takes, in one order. A kernel works on one tile: query rows of the heads that
// share one kv head of one batch entry, against one range of keys. Coordinates may be those of the whole problem, or
// count from the crop's corner with the offsets shifted to match, as the runtime does.
#pragma once

#include <vector>

#include "Halide.h"

namespace hattn::generators {

// Lifts the unit stride that Halide assumes of the innermost dimension.
void allow_any_stride(Halide::ImageParam &input);
void allow_any_stride(Halide::Func &output);

struct AttentionInputs {
    AttentionInputs();

    Halide::ImageParam query;         // (d, i, h)
    Halide::ImageParam key;           // (d, j)
    Halide::ImageParam value;         // (d, j)
    Halide::ImageParam bias;          // (j, i, h), strides may be 0
    Halide::ImageParam mask;          // (j, i, h) uint8, strides may be 0; nonzero: visible
    Halide::ImageParam alibi_slopes;  // (h)
    Halide::ImageParam sinks;         // (h) natural logits; -inf: none
    Halide::ImageParam known_lse;     // (r) natural; read by the probability kernels alone
    Halide::Param<float> scale;
    Halide::Param<float> softcap;
    // Row i sees the keys j with i + first_offset <= j <= i + last_offset; |offsets| <= 2^30.
    Halide::Param<int> first_offset, last_offset;
    Halide::Param<int> position_offset;  // position of row i among the keys is i + position_offset

    std::vector<Halide::Argument> arguments() const;

    // Rows of the tile count through the heads first: row r is (i, h) = (i0 + r / heads, h0 + r % heads).
    Halide::Expr heads() const;
    Halide::Expr rows() const;
    Halide::Expr key_dim() const;
    Halide::Expr value_dim() const;
    Halide::Expr first_key() const;
    Halide::Expr key_count() const;
};

}  // namespace hattn::generators
