// The state of a row in slices, see decision 0021.
#include "attention_stages.h"
#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

void AttentionStages::carry_state(const Expr &own_max, const Expr &own_sum, int elements) {
    std::vector<Expr> empty(2 + elements, 0.0f);
    empty[0] = kMaskedScore;
    state(r, slice) = Tuple(empty);
    Expr before = state(r, slice)[0];
    Expr now = max(before, own_max);
    Expr keep = exp2(before - reference(now));
    Expr take = exp2(reference(own_max) - reference(now));
    std::vector<Expr> next = {now, state(r, slice)[1] * keep + own_sum * take};
    for (int e = 0; e < elements; ++e) {
        next.push_back(state(r, slice)[2 + e] * keep + chunk_output(r, e, slice, over_chunks) * take);
    }
    state(r, slice) = Tuple(next);
}

Expr AttentionStages::state_element(const Tuple &of_slice, const Expr &which) {
    Expr result = of_slice[2];
    for (int e = 1; e + 2 < static_cast<int>(of_slice.size()); ++e) {
        result = select(which == e, of_slice[2 + e], result);
    }
    return result;
}

void AttentionStages::carry_slices(const AttentionInputs &inputs, const StageOptions &options) {
    const int elements = options.head / options.slices;
    const int dealt = kSliceVector * options.slices;  // elements of a head dealt in one turn
    Expr key = over_keys.y * kGranuleKeys + over_keys.x;
    Expr dim = element / kSliceVector * dealt + slice * kSliceVector + element % kSliceVector;
    chunk_output(r, element, slice, c) = 0.0f;
    chunk_output(r, element, slice, c) += weights(r, key, c) * chunk_value(dim, over_keys.x, over_keys.y, c);

    carry_state(chunk_max(r, over_chunks), chunk_sum(r, over_chunks), elements);

    // After the last chunk: lse, and a normalised output.
    Tuple factor = normalise(state(r, slice)[1], state(r, slice)[0], inputs.sinks(head_index()));
    std::vector<Expr> last = {factor[1], factor[0]};
    for (int e = 0; e < elements; ++e) {
        last.push_back(state(r, slice)[2 + e] * factor[0]);
    }
    state(r, slice) = Tuple(last);

    Tuple final = state(r, d / kSliceVector % options.slices);
    Expr which = d % options.head / dealt * kSliceVector + d % kSliceVector;
    Expr result = state_element(final, which);
    // Halide 21.0.0 takes a tile that a serial loop reads for dead after its last use in the loop's body, and gives its
    // shared memory to another one. A use after the loop, of a value that is never taken, keeps the query.
    result = select(final[1] < 0.0f, query_tile(r, 0), result);
    output(d, r) = Tuple(scaled_output(inputs, result, d), final[0]);
}

}  // namespace hattn::generators
