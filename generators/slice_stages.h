// Of rows that threads share, in slices: members of AttentionStages, in whose coordinates they are, defined with
// slices.
#pragma once

#include "Halide.h"

namespace hattn::generators {

struct SliceStages {
    // With in_fragments(). Columns of a chunk's scores and of its output are cut into slices / kFragmentSlices parts,
    // one after the other, for as many warps; within a part they belong to slices as kFragmentVector says. Slice n is
    // the thread n % kFragmentSlices of part n / kFragmentSlices.
    Halide::Var group{"row_group"};  // of rows
    Halide::RDom over_groups;        // of the tile; defined if a hook can hide keys
    Halide::Func group_weight;       // (k, group, c) the largest weight of a thread's rows; likewise
    Halide::RDom over_slice;         // (column, eight) of the keys of a slice in a chunk
    Halide::RDom over_chunk_keys;
    Halide::RDom over_growth;  // (0), of rows whose reference grows
    Halide::Func kept_output;  // (r, element, slice, c) what the chunk finds, relative to the row's new reference
    Halide::Func slice_max;    // (r, slice, c) of logits
    Halide::Func pair_max;     // (r, slice, c) of a slice and the next one; defined with one part
    Halide::Func own_max;      // (r, slice, c) of all slices, as each knows it
    // (r, slice, c) what weights are relative to: the maximum of some of the chunks up to this one, no less than that
    // of all of them by more than kReferenceSlack.
    Halide::Func row_max;
    Halide::Func row_reference;   // (r, slice, c) in exponents
    Halide::Func slice_sum;       // (r, slice, c) of weights
    Halide::Func weight_bits;     // (k, r, c) weights in matrix_type; their sum is taken before they are rounded
    Halide::Func value_rows;      // (d, k, c) value rows
    Halide::Func slice_total;     // (r, slice) sum of weights of all chunks
    Halide::Func row_normaliser;  // (r, slice) Tuple(factor on state, lse) of the row, as each slice knows it
    Halide::Func row_output;      // (d, r) normalised, for threads that do not hold the fragments
    Halide::Func row_lse;         // (r, slice) likewise

    // rescale is (r, slice, c).
    Halide::Func state_before;  // (r, slice, c) of undefined values, which stand for the state that the chunk finds
    // And not in_fragments(): slice_max, slice_sum, slice_total, row_normaliser as above, row_max of all chunks so far.
    Halide::Func shared_max;   // (r, slice, c) slice_max, for threads that do not hold it
    Halide::Func row_weights;  // (k, r, c) weights, likewise

    // With key_groups: slice n has the elements from n * head / slices on, a group the keys of a chunk from
    // key_group * chunk / key_groups on; slice_max is of kSliceVector keys, and row_max of all, in slice 0.
    Halide::Var key_group{"key_group"};
    Halide::RDom over_own_keys;     // of a group, in a chunk
    Halide::Func own_sum;           // (r, slice, key_group, c) of weights
    Halide::Func group_rows;        // (d, r, key_group) unnormalised output of a group's keys
    Halide::Func group_statistics;  // (r, slice, key_group) Tuple(maximum, sum of the group's weights)
};

}  // namespace hattn::generators
