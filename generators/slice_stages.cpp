// The state of a row in slices, see decisions 0021 and 0044.
#include "attention_stages.h"
#include "slices.h"
#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

namespace {

Expr sum_of(Expr a, Expr b) {
    return std::move(a) + std::move(b);
}

Expr larger_of(Expr a, Expr b) {
    return max(std::move(a), std::move(b));
}

// Key number n of a slice.
Expr slice_key(const Expr &slice, const Expr &n, const StageOptions &options) {
    const int at_once = options.slice_keys;
    return n / at_once * (at_once * options.slices) + slice * at_once + n % at_once;
}

}  // namespace

Expr AttentionStages::state_element(const Tuple &of_slice, const Expr &which) {
    Expr result = of_slice[2];
    for (int e = 1; e + 2 < static_cast<int>(of_slice.size()); ++e) {
        result = select(which == e, of_slice[2 + e], result);
    }
    return result;
}

// What an update has made of a Func so far, no other Func can say: schedules/carried_state.h puts the state in its
// place.
void AttentionStages::stand_for_state(int elements) {
    state_before = Func("what_was");  // a name behind those of values and weights
    state_before(r, slice, c) = Tuple(std::vector<Expr>(2 + elements, undef<float>()));
}

void AttentionStages::carry_state(const AttentionInputs &inputs, int slices, int elements) {
    slice_total = Func("slice_total");
    row_normaliser = Func("row_normaliser");
    std::vector<Expr> empty(2 + elements, 0.0f);
    empty[0] = kMaskedScore;
    state(r, slice) = Tuple(empty);
    std::vector<Expr> next = {row_max(r, slice, over_chunks),
                              state(r, slice)[1] * rescale(r, slice, over_chunks) + slice_sum(r, slice, over_chunks)};
    for (int e = 0; e < elements; ++e) {
        next.push_back(chunk_output(r, e, slice, over_chunks));
    }
    state(r, slice) = Tuple(next);

    // After the last chunk.
    slice_total(r, slice) = state(r, slice)[1];
    Expr total = of_all_slices(
        slices, [&](int other) { return slice_total(r, other); }, sum_of);
    row_normaliser(r, slice) = normalise(total, state(r, slice)[0] * exponent_unit, inputs.sinks(head_index()));
}

void AttentionStages::take_slice_maxima(const StageOptions &options) {
    const int slices = options.slices;
    const auto largest = options.of_cuda ? max_of_cuda : larger_of;
    slice_max = Func("slice_max");
    shared_max = Func("shared_max");
    row_max = Func("row_max");
    over_slice = RDom({{0, chunk / slices}}, "over_slice");
    stand_for_state(options.head / slices);
    slice_max(r, slice, c) = kMaskedScore;
    slice_max(r, slice, c) = largest(slice_max(r, slice, c), logits(r, slice_key(slice, over_slice.x, options), c));
    shared_max(r, slice, c) = slice_max(r, slice, c);
    Expr of_row = of_all_slices(
        slices, [&](int other) { return shared_max(r, other, c); }, largest);
    row_max(r, slice, c) = largest(state_before(r, slice, c)[0], of_row);
}

void AttentionStages::carry_slices(const AttentionInputs &inputs, const StageOptions &options) {
    const int elements = options.head / options.slices;
    const int dealt = kSliceVector * options.slices;  // elements of a head dealt in one turn
    slice_sum = Func("slice_sum");
    rescale = Func("slice_rescale");
    slice_sum(r, slice, c) = 0.0f;
    slice_sum(r, slice, c) += weights(r, slice_key(slice, over_slice.x, options), c);
    rescale(r, slice, c) = exp2(state_before(r, slice, c)[0] - reference(row_max(r, slice, c)));

    Expr key = over_keys.y * kGranuleKeys + over_keys.x;
    Expr dim = element / kSliceVector * dealt + slice * kSliceVector + element % kSliceVector;
    chunk_output(r, element, slice, c) = state_element(state_before(r, slice, c), element) * rescale(r, slice, c);
    chunk_output(r, element, slice, c) += row_weights(key, r, c) * chunk_value(dim, over_keys.x, over_keys.y, c);

    carry_state(inputs, options.slices, elements);

    Expr own_slice = d / kSliceVector % options.slices;
    Expr which = d % options.head / dealt * kSliceVector + d % kSliceVector;
    Tuple normaliser_of_row = row_normaliser(r, own_slice);
    Expr result = state_element(state(r, own_slice), which) * normaliser_of_row[0];
    // Halide 21.0.0 takes a tile that a serial loop reads for dead after its last use in the loop's body, and gives its
    // shared memory to another one. A use after the loop, of a value that is never taken, keeps the query.
    result = select(normaliser_of_row[0] < 0.0f, query_tile(r, 0), result);
    output(d, r) = Tuple(scaled_output(inputs, result, d), normaliser_of_row[1]);
}

}  // namespace hattn::generators
