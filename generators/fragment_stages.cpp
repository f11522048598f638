// Stages whose scores, weights and output are fragments of matrices that the threads of a warp hold. The threads of a
// row share it as slices do (decision 0021), and meet where its maximum and its sum are taken.
#include "attention_stages.h"
#include "number_formats.h"
#include "runtime/device/unit_record.h"
#include "slices.h"
#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

namespace {

// Columns of a part, of so many.
int part_columns(int columns, int slices) {
    return columns * kFragmentSlices / slices;
}

// The column with number n of a slice, of so many of each.
Expr column_of(const Expr &slice, const Expr &n, int columns, int slices) {
    return slice / kFragmentSlices * part_columns(columns, slices) + n / kFragmentVector * kFragmentColumns +
           slice % kFragmentSlices * kFragmentVector + n % kFragmentVector;
}

}  // namespace

Expr fragment_slice(const Expr &column, int columns, int slices) {
    return column / part_columns(columns, slices) * kFragmentSlices + column / kFragmentVector % kFragmentSlices;
}

Expr element_of_row(const AttentionInputs &inputs, const Expr &d, const Expr &dim,
                    const std::function<Expr(Expr)> &element) {
    const auto or_zero = [](const Expr &there, const Expr &value) {
        return select(there, value, cast(value.type(), 0));
    };
    Expr block = d / kAlignedElements * kAlignedElements;
    Expr of_block = or_zero(block < dim, element(min(block, dim - kAlignedElements) + d % kAlignedElements));
    return select(inputs.row_layout >= kRowsAligned, of_block,
                  or_zero(likely(d < dim), element(min(likely(d), dim - 1))));
}

Expr ScoreStages::query_of_row(const Expr &d) const {
    return element_of_row(inputs_, d, inputs_.key_dim(),
                          [&](Expr dim) { return inputs_.query_element(std::move(dim), row_index(), head_index()); });
}

Expr ScoreStages::key_of_row(const Expr &d, const Expr &key) const {
    return element_of_row(inputs_, d, inputs_.key_dim(), [&](Expr dim) {
        return inputs_.key_element(std::move(dim), key / kGranuleKeys, key % kGranuleKeys);
    });
}

Expr AttentionStages::value_of_row(const AttentionInputs &inputs, const Expr &granule_index, const Expr &key) const {
    Expr seen = nearest_key(inputs, key);
    return element_of_row(inputs, d, inputs.value_dim(), [&](const Expr &dim) {
        return inputs.value_half(dim, granule_index, nearest_slot(inputs, slot, granule_index), seen);
    });
}

void AttentionStages::take_fragment_maxima(const StageOptions &options) {
    const int slices = options.slices;
    slice_max = Func("slice_max");
    row_max = Func("row_max");
    over_slice = RDom({{0, kFragmentVector}, {0, part_columns(chunk, slices) / kFragmentColumns}}, "over_slice");
    Expr key = column_of(slice, over_slice.y * kFragmentVector + over_slice.x, chunk, slices);
    slice_max(r, slice, c) = kMaskedScore;
    slice_max(r, slice, c) = max_of_cuda(slice_max(r, slice, c), logits(r, key, c));
    own_max = Func("own_max");
    if (slices > kFragmentSlices) {
        own_max(r, slice, c) = of_all_slices(
            slices, [&](int other) { return slice_max(r, other, c); }, max_of_cuda);
    } else {
        // slice ^ bit, in a way that Halide knows the bounds of.
        const auto other = [&](int bit) { return slice / (2 * bit) * (2 * bit) + (slice + bit) % (2 * bit); };
        pair_max = Func("pair_max");
        pair_max(r, slice, c) = max_of_cuda(slice_max(r, slice, c), slice_max(r, other(1), c));
        own_max(r, slice, c) = max_of_cuda(pair_max(r, slice, c), pair_max(r, other(2), c));
    }
    stand_for_state(options.head / slices);
    // While a row's maximum grows by little, what it has so far need not be multiplied.
    Expr own = own_max(r, slice, c), before = state_before(r, slice, c)[0];
    row_max(r, slice, c) = select((own - before) * exponent_unit > kReferenceSlack, own, before);
    row_reference = Func("row_reference");
    row_reference(r, slice, c) = max(reference(row_max(r, slice, c)) * exponent_unit, kLowestExponent);
}

// Weights are in registers: threads meet over the largest of their rows.
void AttentionStages::find_keys_seen_in_fragments(int rows, int thread_rows) {
    group_weight = Func("group_weight");
    over_groups = RDom(0, rows / thread_rows, "over_groups");
    Expr row = group / kFragmentGroups * (thread_rows * kFragmentGroups) + group % kFragmentGroups;
    Expr largest = weights(row, k, c);
    for (int other = 1; other < thread_rows; ++other) {
        largest = max_of_cuda(largest, weights(row + other * kFragmentGroups, k, c));
    }
    group_weight(k, group, c) = largest;
    key_seen(k, c) = 0.0f;
    key_seen(k, c) = max_of_cuda(key_seen(k, c), group_weight(k, over_groups, c));
}

void AttentionStages::carry_fragments(const AttentionInputs &inputs, const StageOptions &options) {
    const int slices = options.slices, elements = options.head / slices;
    slice_sum = Func("slice_sum");
    rescale = Func("weights_kept");  // a name behind that of value_rows: values are asked for first
    // Multiplied before there are weights, while few values of a chunk are there; or their sum is taken before, and
    // they are rounded, so that none are left.
    kept_output = Func(options.sums_first ? "were_kept" : "was_kept");
    if (options.sums_first) {
        chunk_output = Func("weighted_values");
    }
    weight_bits = Func("weight_bits");
    value_rows = Func("value_rows");
    row_output = Func("output_rows");  // a name before that of row_lse: realised first, it takes the memory of the keys
    row_lse = Func("row_lse");
    Expr key = column_of(slice, over_slice.y * kFragmentVector + over_slice.x, chunk, slices);
    slice_sum(r, slice, c) = 0.0f;
    slice_sum(r, slice, c) += weights(r, key, c);

    over_chunk_keys = RDom(0, chunk, "over_chunk_keys");
    weight_bits(k, r, c) = half_bits_of_cuda(matrix_type, weights(r, k, c));
    value_rows(d, k, c) = chunk_value(d, k % kGranuleKeys, k / kGranuleKeys, c);
    Tuple before = state_before(r, slice, c);
    rescale(r, slice, c) = exp2((before[0] - row_max(r, slice, c)) * exponent_unit);
    kept_output(r, element, slice, c) = state_element(before, element);
    over_growth = RDom(0, 1, "over_growth");
    over_growth.where(rescale(r, slice, c) < 1.0f);
    kept_output(r, element, slice, c) *= rescale(r, slice, c) + cast<float>(over_growth);
    chunk_output(r, element, slice, c) = kept_output(r, element, slice, c);
    chunk_output(r, element, slice, c) +=
        half_value(matrix_type, weight_bits(over_chunk_keys, r, c)) *
        half_value(matrix_type, value_rows(column_of(slice, element, options.head, slices), over_chunk_keys, c));

    carry_state(inputs, slices, elements);

    Expr own_slice = fragment_slice(d % options.head, options.head, slices);
    Tuple final = state(r, own_slice);
    Expr which = d % part_columns(options.head, slices) / kFragmentColumns * kFragmentVector + d % kFragmentVector;
    Expr result = state_element(final, which);
    Tuple normaliser_of_row = row_normaliser(r, own_slice);
    result *= normaliser_of_row[0];
    // A use of the query after the loop, see carry_slices().
    result = select(normaliser_of_row[0] < 0.0f, half_value(matrix_type, query_tile(r, 0)), result);
    row_output(d, r) = result;
    row_lse(r, slice) = row_normaliser(r, slice)[1];
    output(d, r) = Tuple(row_output(d, r), row_lse(r, 0));
}

}  // namespace hattn::generators
