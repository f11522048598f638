// Stages whose scores, weights and output are fragments of matrices that the threads of a warp hold. The threads of a
// row share it as slices do (decision 0021), and meet where its maximum and its sum are taken.
#include "attention_stages.h"
#include "number_formats.h"
#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

namespace {

// The column with number n of a slice.
Expr column_of(const Expr &slice, const Expr &n) {
    return n / kFragmentVector * kFragmentColumns + slice * kFragmentVector + n % kFragmentVector;
}

template<typename Value>
Expr of_all_slices(Value value, Expr (*join)(Expr, Expr)) {
    Expr all = value(0);
    for (int slice = 1; slice < kFragmentSlices; ++slice) {
        all = join(all, value(slice));
    }
    return all;
}

Expr larger(Expr a, Expr b) {
    return max(std::move(a), std::move(b));
}

Expr sum_of(Expr a, Expr b) {
    return std::move(a) + std::move(b);
}

}  // namespace

Expr fragment_slice(Expr column) {
    return std::move(column) / kFragmentVector % kFragmentSlices;
}

void AttentionStages::take_fragment_maxima() {
    slice_max = Func("slice_max");
    row_max = Func("row_max");
    over_slice = RDom({{0, kFragmentVector}, {0, chunk / kFragmentColumns}}, "over_slice");
    Expr key = over_slice.y * kFragmentColumns + slice * kFragmentVector + over_slice.x;
    slice_max(r, slice, c) = kMaskedScore;
    slice_max(r, slice, c) = max(slice_max(r, slice, c), logits(r, key, c));
    row_max(r, slice, c) = of_all_slices([&](int other) { return slice_max(r, other, c); }, larger);
}

void AttentionStages::carry_fragments(const AttentionInputs &inputs, const StageOptions &options) {
    const int elements = options.head / kFragmentSlices;
    slice_sum = Func("slice_sum");
    weight_bits = Func("weight_bits");
    value_rows = Func("value_rows");
    slice_total = Func("slice_total");
    row_normaliser = Func("row_normaliser");
    row_output = Func("row_output");
    row_lse = Func("row_lse");
    Expr key = over_slice.y * kFragmentColumns + slice * kFragmentVector + over_slice.x;
    slice_sum(r, slice, c) = 0.0f;
    slice_sum(r, slice, c) += weights(r, key, c);

    over_chunk_keys = RDom(0, chunk, "over_chunk_keys");
    weight_bits(k, r, c) = half_bits(matrix_type, weights(r, k, c));
    value_rows(d, k, c) = chunk_value(d, k % kGranuleKeys, k / kGranuleKeys, c);
    chunk_output(r, element, slice, c) = 0.0f;
    chunk_output(r, element, slice, c) +=
        half_value(matrix_type, weight_bits(over_chunk_keys, r, c)) *
        half_value(matrix_type, value_rows(column_of(slice, element), over_chunk_keys, c));

    carry_state(row_max(r, slice, over_chunks), slice_sum(r, slice, over_chunks), elements);

    slice_total(r, slice) = state(r, slice)[1];
    Expr total = of_all_slices([&](int other) { return slice_total(r, other); }, sum_of);
    row_normaliser(r, slice) = normalise(total, state(r, slice)[0], inputs.sinks(head_index()));

    Tuple final = state(r, fragment_slice(d));
    Expr which = d % options.head / kFragmentColumns * kFragmentVector + d % kFragmentVector;
    Expr result = state_element(final, which);
    Tuple normaliser_of_row = row_normaliser(r, fragment_slice(d));
    result *= normaliser_of_row[0];
    // A use of the query after the loop, see carry_slices().
    result = select(normaliser_of_row[0] < 0.0f, half_value(matrix_type, query_tile(r, 0)), result);
    row_output(d, r) = result;
    row_lse(r, slice) = row_normaliser(r, slice)[1];
    output(d, r) = Tuple(row_output(d, r), row_lse(r, 0));
}

}  // namespace hattn::generators
