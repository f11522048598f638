// Of attention, what holds for the keys of a chunk: their maxima and sums by their place in granules, and which of them
// any row sees.
#include "attention_stages.h"

namespace hattn::generators {

using namespace Halide;

void AttentionStages::take_granules(const AttentionInputs &inputs) {
    over_granules = RDom(0, granules(chunk_keys), "over_granules");
    over_granules.where(over_granules < granules(inputs.key_count - c * chunk_keys));
}

void AttentionStages::take_slot_maxima(const AttentionInputs &inputs) {
    over_slots = RDom(0, kGranuleKeys, "over_slots");
    take_granules(inputs);
    Expr key = over_granules * kGranuleKeys + slot;
    slot_max = Func("slot_max");
    slot_max(slot, r, c) = kMaskedScore;
    slot_max(slot, r, c) = max(slot_max(slot, r, c), logits(r, key, c));
}

void AttentionStages::take_slot_sums() {
    slot_sums = Func("slot_sums");
    slot_sums(slot, r, c) = 0.0f;
    slot_sums(slot, r, c) += weights(r, over_granules * kGranuleKeys + slot, c);
}

void AttentionStages::find_seen_keys(const Expr &rows) {
    over_rows = RDom(0, rows, "over_rows");
    key_seen(k, c) = 0.0f;
    Expr weight = row_weights.defined() ? row_weights(k, over_rows, c) : weights(over_rows, k, c);
    key_seen(k, c) = max(key_seen(k, c), is_seen(weight));
}

// Weights of keys that no row sees are 0, but 0 * NaN is not. What a key holds that a row sees reaches all rows anyway.
void AttentionStages::place_values(const AttentionInputs &inputs, int rows) {
    const int lanes = inputs.stored_value.lanes;
    seen_in_lane = Func("seen_in_lane");
    seen_keys = Func("seen_keys");
    seen_key = Func("seen_key");
    value_starts = Func("value_starts");
    over_lane_rows = RDom({{0, rows / lanes}, {0, kGranuleKeys}}, "over_lane_rows");
    over_lanes = RDom(0, lanes, "over_lanes");
    take_granules(inputs);

    Expr weight = weights(over_lane_rows.x * lanes + lane, granule * kGranuleKeys + over_lane_rows.y, c);
    seen_in_lane(lane, granule, c) = 0;
    seen_in_lane(lane, granule, c) = seen_in_lane(lane, granule, c) | select(weight > 0.0f, 1 << over_lane_rows.y, 0);
    seen_keys(granule, c) = 0;
    seen_keys(granule, c) = seen_keys(granule, c) | seen_in_lane(over_lanes, granule, c);
    Expr of_granule = seen_keys(over_granules, c);
    seen_key(c) = -1;
    seen_key(c) = select(of_granule != 0, over_granules * kGranuleKeys + count_trailing_zeros(of_granule), seen_key(c));

    Expr seen = ((seen_keys(k / kGranuleKeys, c) >> (k % kGranuleKeys)) & 1) != 0;
    Expr key = c * chunk_keys + select(seen, k, max(seen_key(c), 0));
    value_starts(k, c) = inputs.value_start(unsafe_promise_clamped(key, 0, inputs.key_count - 1));
}

}  // namespace hattn::generators
