// Stages whose products are of bytes: keys and values are lines of int4, and queries and weights are rounded to
// integers of two digits, in units of the largest that there is. By row.
#include "attention_stages.h"

namespace hattn::generators {

using namespace Halide;

// The products of high digits, times the base, and those of low digits. Integers are summed up within quarters, whose
// scales multiply these sums.
Expr ScoreStages::multiply_digits(int fetch_block) {
    const IntegerDigits digits = inputs_.key_digits();
    query_positions = digits.positions();
    round_query([&](const Expr &position) { return query_tile(r, digits.element(position)); }, query_positions,
                kLargestDigits);
    query_digits = Func("query_digits");
    query_offsets = Func("query_offsets");
    query_digits(r, d, digit) = digit_of(query_integers(r, d), digit);
    constexpr int kQuarterBytes = kLineBytes / kQuarters;
    over_quarter = RDom({{0, kQuarterBytes}, {0, kNibbles}}, "over_quarter");
    Expr of_quarter = digits.position(step, over_quarter.y, quarter * kQuarterBytes + over_quarter.x);
    query_offsets(quarter, r, step) = 0;
    query_offsets(quarter, r, step) += cast<int>(query_integers(r, of_quarter)) * -kByteOffset;

    key_line = Func("key_line");
    key_line_scales = Func("key_line_scales");
    const ImageParam &scales = inputs_.stored_key.block_scales;
    dense_key_scales = scales.dim(0).stride() == 1;
    whole_key_scales = dense_key_scales && scales.dim(1).stride() == kQuarters;
    key_granule = Func("key_granule");
    key_granule(k, c) = inputs_.key_granules(key_index(k * kGranuleKeys, c) / kGranuleKeys);
    const ImageParam &bytes = inputs_.stored_key.bytes;
    Expr granule = unsafe_promise_clamped(key_granule(k / kGranuleKeys, c), bytes.dim(2).min(), bytes.dim(2).max());
    key_line(d, step, k, c) = bytes(step * kLineBytes + d, key_index(k, c) % kGranuleKeys, granule);
    key_line_scales(quarter, step, k, c) = select(one_key_scale, 1.0f, key_scales()(step * kQuarters + quarter));

    over_products = RDom({{0, kSides}, {0, kNibbles}}, "over_products");
    Expr byte = lane * kSides + over_products.x;
    const auto product = [&](int of_digit) {
        Expr query = query_digits(r, digits.position(step, over_products.y, byte), of_digit);
        return cast<int>(digits.number(key_line(byte, step, k, c), over_products.y)) * cast<int>(query);
    };
    step_sums = Func("step_sums");
    step_sums(lane, r, k, step, c) = 0;
    step_sums(lane, r, k, step, c) += product(1);
    step_sums(lane, r, k, step, c) = step_sums(lane, r, k, step, c) << kDigitBits;
    step_sums(lane, r, k, step, c) += product(0);
    line_sums = Func("line_sums");
    line_sums(lane, r, k, step, c) = step_sums(lane, r, k, step, c);
    quarter_sums = Func("quarter_sums");
    over_lanes = RDom(0, digits.lanes / kQuarters, "over_lanes");
    quarter_sums(k, quarter, r, step, c) = 0;
    quarter_sums(k, quarter, r, step, c) += line_sums(quarter * (digits.lanes / kQuarters) + over_lanes, r, k, step, c);

    over_scaled = RDom(0, digits.lines(), "over_scaled");
    quarter_scores = Func("quarter_scores");
    Expr sum = cast<float>(quarter_sums(k, quarter, r, over_scaled, c) + query_offsets(quarter, r, over_scaled));
    quarter_scores(k, quarter, r, c) = asked(k / fetch_block, c);
    quarter_scores(k, quarter, r, c) += sum * key_line_scales(quarter, over_scaled, k, c);
    Expr score(0.0f);
    for (int i = 0; i < kQuarters; ++i) {
        score += quarter_scores(k, i, r, c);
    }
    dot(r, k, c) = score;
    return dot(r, k, c) * (query_unit(r) / static_cast<float>(kNibbleUnit));
}

void AttentionStages::weigh_digits(const AttentionInputs &inputs) {
    const IntegerDigits digits = inputs.value_digits();
    value_scales = Func("weight_scales");
    value_scales(quarter, k, step, c) = stored_value_scale(inputs, step * kQuarters + quarter);
    constexpr int kQuads = kGranuleKeys / kSides, kLanes = kQuads * kQuarters;
    const auto there = [&](const Expr &of_granule) { return of_granule < granules(inputs.key_count - c * chunk_keys); };
    lane_scales = Func("lane_scales");
    over_lane_scales = RDom({{0, kSides}, {0, granules(chunk_keys)}, {0, digits.lines()}}, "over_lane_scales");
    over_lane_scales.where(there(over_lane_scales.y) && !one_value_scale);
    Expr key_of_lane = over_lane_scales.y * kGranuleKeys + over_lane_scales.x * kQuads + lane / kQuarters;
    lane_scales(lane, c) = 0.0f;
    lane_scales(lane, c) =
        max(lane_scales(lane, c), size_of_scale(value_scales(lane % kQuarters, key_of_lane, over_lane_scales.z, c)));
    over_scales = RDom(0, kLanes, "over_scales");
    find_weight_unit(lane_scales(over_scales, c), kLargestDigits);

    weight_digits = Func("weight_digits");
    block_digits = Func("block_digits");
    const auto digit_of_weight = [&](const Expr &weight) {
        return digit_of(nearest_integer(weight * weight_rate(r, c)), digit);
    };
    weight_digits(k, r, digit, c) = digit_of_weight(weights(r, k, c));
    Expr key = quad * kSides + side;
    block_digits(side, quarter, quad, r, digit, step, c) =
        digit_of_weight(weights(r, key, c) * value_scales(quarter, key, step, c));

    over_digits = RDom({{0, kSides}, {0, granules(chunk_keys)}}, "over_digits");
    over_digits.where(there(over_digits.y));
    lane_digits = Func("lane_digits");
    lane_blocks = Func("lane_blocks");
    digit_sums = Func("digit_sums");
    block_sums = Func("block_sums");
    Expr of_quad = over_digits.y * kQuads + quad, of_lane = over_digits.y * kQuads + lane / kQuarters;
    lane_digits(quad, r, digit, c) = 0;
    lane_digits(quad, r, digit, c) += cast<int>(weight_digits(of_quad * kSides + over_digits.x, r, digit, c));
    lane_blocks(lane, r, digit, step, c) = 0;
    lane_blocks(lane, r, digit, step, c) +=
        cast<int>(block_digits(over_digits.x, lane % kQuarters, of_lane, r, digit, step, c));
    Expr sum = 0, sum_of_block = 0;
    for (int i = 0; i < kQuads; ++i) {
        sum += lane_digits(i, r, digit, c);
        sum_of_block += lane_blocks(i * kQuarters + quarter, r, digit, step, c);
    }
    digit_sums(r, digit, c) = sum;
    block_sums(quarter, r, digit, step, c) = sum_of_block;
}

void AttentionStages::multiply_value_digits(const AttentionInputs &inputs, const StageOptions &options) {
    weigh_digits(inputs);
    const IntegerDigits digits = inputs.value_digits();
    value_positions = digits.positions();
    value_bytes = Func("value_bytes");
    value_halves = Func("value_halves");
    value_words = Func("value_words");
    integer_output = Func("integer_output");
    constexpr int kQuads = kGranuleKeys / kSides;

    // In parts of lines, each of as many panels as a pass takes.
    const int panels = options.fetch_pass / digits.lanes, parts = kPanelsOfLine / panels;
    Expr stored_granule = c * granules(chunk_keys) + granule;
    Expr slot_of_quad = quad * kSides + side;
    Expr byte = part / parts * kLineBytes + d;
    Expr stored = inputs.value_byte(byte, stored_granule, nearest_slot(inputs, slot_of_quad, stored_granule));
    fetch_next_values(inputs, options);
    // The others are asked for with the first part of a line.
    Expr asked_slot = quad * kSides + max(side, kValuesWithScores);
    Expr nothing = asked_next(asked_slot, part / parts * granules(options.chunk) + granule, c);
    stored += cast<uint8_t>(select(part % parts == 0, nothing, 0.0f));
    value_bytes(d, side, part, quad, granule, c) = stored;
    value_halves(side, d, pair, half, part, quad, granule, c) =
        value_bytes(digits.byte_of_half(half, d), 2 * pair + side, part, quad, granule, c);
    constexpr int kWords = kPanelsOfHalf / kPanelsOfWord;
    value_words(side, d, word, part, quad, granule, c) =
        value_halves(side % 2, digits.place_of_word(word, d), side / 2, word / kWords, part, quad, granule, c);

    over_key_quads = RDom({{0, kSides}, {0, kQuads}, {0, granules(chunk_keys)}}, "over_key_quads");
    over_key_quads.where(over_key_quads.z < granules(inputs.key_count - c * chunk_keys));
    Expr of_quad = over_key_quads.z * kQuads + over_key_quads.y;
    Expr of_line = panel / kPanelsOfLine, of_lane = lane / (digits.lanes / kQuarters);
    Expr weight = select(one_value_scale, weight_digits(of_quad * kSides + over_key_quads.x, r, digit, c),
                         block_digits(over_key_quads.x, of_lane, of_quad, r, digit, of_line, c));
    Expr sum = select(one_value_scale, digit_sums(r, digit, c), block_sums(of_lane, r, digit, of_line, c));
    Expr value = digits.value(value_words(over_key_quads.x, lane, panel / kPanelsOfWord, panel / panels,
                                          over_key_quads.y, over_key_quads.z, c),
                              panel);
    integer_output(r, lane, panel, digit, c) = -digits.value_offset(panel) * sum;
    integer_output(r, lane, panel, digit, c) += cast<int>(value) * cast<int>(weight);
    Expr of_panel = d / digits.lanes;
    const auto output_of = [&](int of_digit) {
        return cast<float>(integer_output(r, d % digits.lanes, of_panel, of_digit, c));
    };
    chunk_output(r, d, c) = (output_of(1) * static_cast<float>(kDigitBase) + output_of(0)) *
                            (weight_unit(r, c) * digits.value_unit(of_panel));
}

}  // namespace hattn::generators
