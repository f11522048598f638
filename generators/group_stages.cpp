// Keys of a chunk shared out to groups of threads, see decision 0045.
#include "attention_stages.h"
#include "runtime/device/unit_record.h"
#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

namespace {

// Which element of a row stands for d, which need not have it: the row's last, or where rows are aligned one of its
// last block of so many.
// entry: of the table of granules, which is not negative; a compiler does not know, so that it does not keep what
// follows from `dim` for each element in a register throughout a loop.
Expr padded_element(const AttentionInputs &inputs, const Expr &d, const Expr &dim, const Expr &entry, int block) {
    Expr of_block = min(d / block * block, dim - block) + d % block;
    return select(inputs.row_layout >= kRowsAligned, of_block, min(d, dim - 1 + clamp(entry, -1, 0)));
}

}  // namespace

// Keys past the last are computed from the last ones and masked, as in key_index(). Clamped apart, keys of a granule
// share the look-up.
Expr ScoreStages::key_of_slice(int elements) const {
    Expr key = c * chunk_keys + k;
    Expr granule = min(key / kGranuleKeys, granules(inputs_.key_count) - 1);
    Expr slot = min(key % kGranuleKeys, inputs_.key_count - 1 - granule * kGranuleKeys);
    return inputs_.key_float(padded_element(inputs_, d, inputs_.key_dim(), inputs_.key_granules(granule), elements),
                             granule, slot, min(key, inputs_.key_count - 1));
}

Expr AttentionStages::value_of_slice(const AttentionInputs &inputs, const Expr &granule_index, const Expr &key,
                                     int elements) const {
    Expr element = padded_element(inputs, d, inputs.value_dim(), inputs.value_granules(granule_index), elements);
    return inputs.value_float(element, granule_index, nearest_slot(inputs, slot, granule_index),
                              nearest_key(inputs, key));
}

void ScoreStages::multiply_slices(int slices, int elements) {
    lane_sums = Func("lane_sums");
    over_lanes = RDom(0, slices, "over_lanes");
    Expr sum;
    for (int e = 0; e < elements; ++e) {
        Expr product = query_tile(r, lane * elements + e) * key_rows(lane * elements + e, k, c);
        sum = sum.defined() ? sum + product : product;
    }
    lane_sums(lane, r, k, c) = sum;
    dot(r, k, c) += lane_sums(over_lanes, r, k, c);
}

namespace {

template<typename Value>
Expr joined(int count, Value value, Expr (*join)(Expr, Expr)) {
    Expr all = value(0);
    for (int i = 1; i < count; ++i) {
        all = join(all, value(i));
    }
    return all;
}

Expr added(Expr a, Expr b) {
    return std::move(a) + std::move(b);
}

}  // namespace

void AttentionStages::take_key_maxima() {
    slice_max = Func("slice_max");
    row_max = Func("row_max");
    slice_max(r, slice, c) = joined(
        kSliceVector, [&](int key) { return logits(r, slice * kSliceVector + key, c); }, max_of_cuda);
    row_max(r, slice, c) = joined(
        chunk / kSliceVector, [&](int other) { return slice_max(r, other, c); }, max_of_cuda);
}

void AttentionStages::carry_groups(const AttentionInputs &inputs, const StageOptions &options) {
    const int elements = options.head / options.slices, keys = options.chunk / options.key_groups;
    value_rows = Func("value_rows");
    own_sum = Func("own_sum");
    group_rows = Func("group_rows");
    group_statistics = Func("group_statistics");
    row_normaliser = Func("row_normaliser");
    over_own_keys = RDom(0, keys, "over_own_keys");
    Expr key = key_group * keys + over_own_keys;
    value_rows(d, k, c) = chunk_value(d, k % kGranuleKeys, k / kGranuleKeys, c);
    own_sum(r, slice, key_group, c) = 0.0f;
    own_sum(r, slice, key_group, c) += weights(r, key, c);
    chunk_output(r, element, slice, key_group, c) = 0.0f;
    chunk_output(r, element, slice, key_group, c) +=
        weights(r, key, c) * value_rows(slice * elements + element, key, c);

    std::vector<Expr> empty(2 + elements, 0.0f);
    empty[0] = kMaskedScore;
    state(r, slice, key_group) = Tuple(empty);
    Tuple held = state(r, slice, key_group);
    Expr own_max = row_max(r, 0, over_chunks), now = max(held[0], own_max);
    Expr keep = exp2(held[0] - reference(now)), take = exp2(reference(own_max) - reference(now));
    std::vector<Expr> next = {now, held[1] * keep + own_sum(r, slice, key_group, over_chunks) * take};
    for (int e = 0; e < elements; ++e) {
        next.push_back(held[2 + e] * keep + chunk_output(r, e, slice, key_group, over_chunks) * take);
    }
    state(r, slice, key_group) = Tuple(next);

    // After the last chunk what the groups have adds up, since their maximum is the same.
    group_statistics(r, slice, key_group) = Tuple(state(r, slice, key_group)[0], state(r, slice, key_group)[1]);
    group_rows(d, r, key_group) = state_element(state(r, d / elements, key_group), d % elements);
    Expr total = joined(
        key_groups, [&](int group) { return Expr(group_statistics(r, 0, group)[1]); }, added);
    row_normaliser(r) = normalise(total, group_statistics(r, 0, 0)[0], inputs.sinks(head_index()));
    Expr result = joined(
        key_groups, [&](int group) { return Expr(group_rows(d % options.head, r, group)); }, added);
    result *= row_normaliser(r)[0];
    // A use of the query after the loop, see carry_slices().
    result = select(row_normaliser(r)[0] < 0.0f, query_tile(r, 0), result);
    output(d, r) = Tuple(scaled_output(inputs, result, d), row_normaliser(r)[1]);
}

}  // namespace hattn::generators
