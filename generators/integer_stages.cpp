// Stages whose products are of pairs of 16-bit integers: keys and values are int8 or int4, and queries and weights are
// rounded to integers, in units of the largest that there is.
#include <limits>

#include "attention_stages.h"
#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

void ScoreStages::round_query(const RowSteps::Row &at, const Expr &positions, int largest) {
    query_steps = Func("query_steps");
    query_peak = Func("query_peak");
    query_unit = Func("query_unit");
    query_integers = Func("query_integers");
    over_positions = RDom(0, positions, "over_positions");
    query_steps(r, d) = at(d);
    query_peak(r) = 0.0f;
    query_peak(r) = max(query_peak(r), abs(query_steps(r, over_positions)));
    constexpr float kSmallestPeak = 1e-30f;
    query_unit(r) = max(query_peak(r), kSmallestPeak) / static_cast<float>(largest);
    query_integers(r, d) = nearest_integer(query_steps(r, d) / query_unit(r));
}

// All lines of a block of keys.
void ScoreStages::ask_with_steps(int fetch_block, const Expr &steps) {
    const int asks = lines_of_step(fetch_block);
    asked = Func("asked");
    over_asks = RDom({{0, asks}, {0, steps}}, "over_asks");
    asked(k, c) = 0.0f;
    asked(k, c) += fetched_line(k * asks + over_asks.x, over_asks.y, c);
}

void ScoreStages::begin_integer_sums(const RowSteps &steps, int sides, int vectors) {
    step_sums = Func("step_sums");
    lane_sums = Func("lane_sums");
    lane_integers = Func("lane_integers");
    lane_floats = Func("lane_floats");
    over_step = RDom({{0, sides}, {0, vectors}}, "over_step");
    over_integers = RDom({{0, sides}, {0, vectors}, {0, steps.count()}}, "over_integers");
    over_scaled = RDom(0, steps.count(), "over_scaled");
    over_lanes = RDom(0, steps.lanes, "over_lanes");
}

Expr ScoreStages::end_integer_sums() {
    dot(r, k, c) += select(one_key_scale, lane_floats(over_lanes, r, k, c), lane_sums(over_lanes, r, k, c));
    return dot(r, k, c) * query_unit(r);
}

// A sum over all elements of a row has its scales if all keys have one, and else those of its blocks multiply their
// parts of it.
Expr ScoreStages::multiply_integers(int fetch_block) {
    const IntegerPairs steps = inputs_.key_pairs();
    round_query(
        [&](Expr position) { return steps.query([&](Expr e) { return query_tile(r, std::move(e)); }, position); },
        steps.positions(), kLargestInteger);

    if (!by_row) {
        ask_with_steps(fetch_block, steps.count());
    }
    constexpr int kSides = 2;
    begin_integer_sums(steps, kSides, steps.vectors());
    const auto product = [&](const Expr &of_step, const RVar &vector, const RVar &of_pair) {
        Expr at = of_step * steps.elements + vector * (kSides * steps.lanes) + lane * kSides + of_pair;
        return cast<int>(query_integers(r, at)) * cast<int>(key_rows(at, k, c));
    };
    Expr nothing = asked(by_row ? k : k / fetch_block, c);
    step_sums(lane, r, k, step, c) = 0;
    step_sums(lane, r, k, step, c) += product(step, over_step.y, over_step.x);
    lane_sums(lane, r, k, c) = nothing;
    lane_sums(lane, r, k, c) +=
        cast<float>(step_sums(lane, r, k, over_scaled, c)) * steps.scale(key_scales(), over_scaled, lane);
    lane_integers(lane, r, k, c) = cast<int>(nothing);
    lane_integers(lane, r, k, c) += product(over_integers.z, over_integers.y, over_integers.x);
    lane_floats(lane, r, k, c) = cast<float>(lane_integers(lane, r, k, c));
    return end_integer_sums();
}

Expr AttentionStages::stored_value_scale(const AttentionInputs &inputs, const Expr &of_block) {
    const ImageParam &scales = inputs.stored_value.block_scales;
    dense_value_scales = scales.dim(0).stride() == 1;
    value_scale_stride = scales.dim(1).stride();
    Expr of_key = min(c * granules(chunk_keys) + k / kGranuleKeys, granules(inputs.key_count) - 1);
    return inputs.stored_value.block_scale(of_block, of_key, nearest_slot(inputs, k % kGranuleKeys, of_key));
}

// int32, in whose order sizes are, and NaNs behind infinity.
Expr size_of_scale(const Expr &scale) {
    return reinterpret<int>(abs(scale));
}

// A NaN counts as infinity, lest it vanishes: integers have none.
Expr scale_of_size(const Expr &size) {
    return reinterpret<float>(min(size, reinterpret<int>(Expr(std::numeric_limits<float>::infinity()))));
}

// Relative to the largest weight and the largest scale of the chunk.
void AttentionStages::find_weight_unit(const Expr &size, int largest_integer) {
    largest_scale = Func("largest_scale");
    weight_unit = Func("weight_unit");
    weight_rate = Func("weight_rate");
    largest_scale(c) = 0;
    largest_scale(c) = max(largest_scale(c), size);

    constexpr float kSmallestWeight = 1e-12f, kSmallestScale = 1e-18f;
    Expr largest = exp2_nonpositive(relative_exponent(chunk_max(r, c), running_max(r, c)));
    Expr unit_scale = max(scale_of_size(largest_scale(c)), kSmallestScale);
    if (values_in_digits) {
        unit_scale = select(one_value_scale, 1.0f, unit_scale);
    }
    weight_unit(r, c) = max(largest, kSmallestWeight) * unit_scale / static_cast<float>(largest_integer);
    weight_rate(r, c) = 1.0f / weight_unit(r, c);
}

// By the scale of values, which all elements share, or blocks of them.
void AttentionStages::weigh_blocks(const AttentionInputs &inputs, int largest_integer) {
    // A name behind those of what they are multiplied by: scales are read after scores, which ask for them.
    value_scales = Func("weight_scales");
    value_blocks = select(one_value_scale, 1, inputs.value_dim() / kScaleBlock);
    value_scales(k, block, c) = select(one_value_scale, 1.0f, stored_value_scale(inputs, block));
    over_scales = RDom({{0, kGranuleKeys}, {0, granules(chunk_keys)}, {0, value_blocks}}, "over_scales");
    over_scales.where(over_scales.y < granules(inputs.key_count - c * chunk_keys));
    Expr of_chunk = present_keys ? present_granule(inputs, over_scales.y) : Expr(over_scales.y);
    Expr scale = value_scales(of_chunk * kGranuleKeys + over_scales.x, over_scales.z, c);
    find_weight_unit(size_of_scale(scale), largest_integer);
}

Expr AttentionStages::weight_in_units(const Expr &key, const Expr &row, const Expr &of_block, const Expr &chunk) const {
    return nearest_integer(weights(row, key, chunk) * value_scales(key, of_block, chunk) * weight_rate(row, chunk));
}

// Where places of keys are used twice, Halide names them outside of the condition that limits them, so that all keys of
// a chunk would be computed.
Expr AttentionStages::present_granule(const AttentionInputs &inputs, const Expr &of_chunk) const {
    return min(of_chunk, granules(inputs.key_count - c * chunk_keys) - 1);
}

void AttentionStages::multiply_value_integers(const AttentionInputs &inputs, const StageOptions &options) {
    weigh_blocks(inputs, kLargestInteger);
    weight_integers = Func("weight_integers");
    weight_integers(k, r, block, c) = weight_in_units(k, r, block, c);
    const IntegerPairs steps = inputs.value_pairs();
    value_step = steps.elements;
    word_runs = steps.words ? steps.runs() : 1;
    value_positions = steps.positions();
    value_integers = Func("value_integers");
    integer_output = Func("integer_output");
    value_pairs = Func("value_pairs");
    Expr stored_granule = c * granules(chunk_keys) + granule;
    const auto byte = [&](Expr at) {
        return inputs.value_byte(std::move(at), stored_granule, nearest_slot(inputs, 2 * pair + side, stored_granule));
    };
    const int numbers = 2 * steps.lanes;  // of a panel
    Expr of_row = panel;
    if (options.fetch_pass > steps.elements && steps.elements <= kScaleBlock) {
        // Past the last panel of a row that fills no whole passes, read that. Longer steps do so by themselves.
        whole_passes = value_positions % options.fetch_pass == 0;
        of_row = select(whole_passes, panel, min(panel, value_positions / numbers - 1));
    }
    const int panels_of_pass = options.fetch_pass / numbers / word_runs;
    Expr number = steps.words ? steps.word(byte, of_row * numbers + lane) : steps.number(byte, of_row * numbers + lane);
    if (options.fetch_pass > 0) {
        by_row ? fetch_next_values(inputs, options) : fetch_next_keys(inputs, options);
        Expr pass = panel / panels_of_pass;
        number += cast<int16_t>(
            asked_next(2 * pair + (by_row ? Expr(side) : Expr(0)), pass * granules(options.chunk) + granule, c));
    }
    value_integers(side, lane, panel, pair, granule, c) = number;
    value_pairs(side, lane, panel, pair, granule, c) =
        value_integers(side, steps.summed(lane), panel, pair, granule, c);
    Func of_pair = value_pairs;
    if (steps.words) {
        of_pair = word_numbers = Func("word_numbers");
        word_numbers(side, lane, panel, pair, granule, c) =
            steps.part(value_pairs(side, lane, panel / word_runs, pair, granule, c), panel % word_runs);
    }

    constexpr int kPairs = kGranuleKeys / 2;
    over_key_pairs = RDom({{0, 2}, {0, kPairs}, {0, granules(chunk_keys)}}, "over_key_pairs");
    over_key_pairs.where(over_key_pairs.z < granules(inputs.key_count - c * chunk_keys));
    Expr of_chunk =
        present_keys && all_type == HATTN_INT4 ? present_granule(inputs, over_key_pairs.z) : Expr(over_key_pairs.z);
    Expr key = of_chunk * kGranuleKeys + 2 * over_key_pairs.y + over_key_pairs.x;
    const auto weight = [&](Expr of_block) {
        Expr scaled = clamp(select(one_value_scale, 0, std::move(of_block)), 0, value_blocks - 1);
        return weight_integers(key, r, scaled, c);
    };
    Expr step_of_panel = panel / (steps.elements / numbers);
    Expr weight_of_panel = cast<int>(steps.scale(weight, step_of_panel, lane % steps.lanes));
    if (by_row && !in_digits && options.fetch_pass > kNarrowHead) {
        narrow_values.push_back(inputs.value.dim(0).extent() == kNarrowHead);
        weight_of_panel =
            select(narrow_values.back() && panel % (options.fetch_pass / numbers) >= kNarrowHead / numbers, 0,
                   weight_of_panel);
    }
    integer_output(r, lane, panel, c) = 0;
    integer_output(r, lane, panel, c) +=
        weight_of_panel * cast<int>(of_pair(over_key_pairs.x, lane, panel, over_key_pairs.y, of_chunk, c));
    chunk_output(r, d, c) = cast<float>(integer_output(r, d % numbers, d / numbers, c)) * weight_unit(r, c);
}

}  // namespace hattn::generators
