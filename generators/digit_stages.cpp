// Stages whose products are of bytes: keys are lines of int8 or int4, values those of int4, and queries and weights are
// rounded to integers of two digits, in units of the largest that there is. By row.
#include "attention_stages.h"

namespace hattn::generators {

using namespace Halide;

// Words of four keys change places, so that those of one word of each quarter lie side by side, and a word of
// a query stands beside as many: products are summed up where they are, quarter by quarter and key by key.
void ScoreStages::sum_words(const IntegerDigits &of_row, const Expr &joined) {
    DigitScores &s = digits;
    s.key_pairs = Func("key_pairs");
    Expr of_quarter = (s.half * kKeysOfPair + s.word) * kSides + side;
    s.key_pairs(side, s.key_of_pair, s.word, s.quarter, s.half, pair, step, c) =
        s.key_line(s.quarter * kQuarterBytes + of_quarter, step, pair * kKeysOfPair + s.key_of_pair, c);
    s.words_of_four = Func("words_of_four");
    s.words_of_four(side, s.key_of_four, s.quarter, s.word, s.four, step, c) =
        s.key_pairs(side, s.key_of_four % kKeysOfPair, s.word % kKeysOfPair, s.quarter, s.word / kKeysOfPair,
                    s.four * kKeysOfPair + s.key_of_four / kKeysOfPair, step, c);
    s.query_words = Func("query_words");
    s.query_words(side, s.key_of_four, s.quarter, s.nibble, s.word, step, s.digit, r) =
        s.query_digits(r, of_row.position(step, s.nibble, s.quarter * kQuarterBytes + s.word * kSides + side), s.digit);

    const int nibbles = of_row.nibbles();
    s.over_words = RDom({{0, kSides}, {0, kQuarterWords * nibbles}, {0, joined}}, "over_words");
    const Expr of_byte = s.over_words.y % nibbles, word = s.over_words.y / nibbles, line_of_row = step + s.over_words.z;
    Expr number =
        of_row.number(s.words_of_four(s.over_words.x, s.key_of_four, s.quarter, word, s.four, line_of_row, c), of_byte);
    Expr query = s.query_words(s.over_words.x, s.key_of_four, s.quarter, of_byte, word, line_of_row, s.digit, r);
    s.word_sums = Func("word_sums");
    s.word_sums(s.key_of_four, s.quarter, s.digit, r, s.four, step, c) =
        select(s.digit == 0, s.key_offsets(s.key_of_four, s.quarter, r, step), 0);
    s.word_sums(s.key_of_four, s.quarter, s.digit, r, s.four, step, c) += cast<int>(number) * cast<int>(query);
    const auto of_digit = [&](int digit) { return s.word_sums(s.key_of_four, s.quarter, digit, r, s.four, step, c); };
    s.quarter_sums(s.key_of_four, s.quarter, r, s.four, step, c) = (of_digit(1) << kDigitBits) + of_digit(0);
}

// Line by line: the products of high digits, times the base, and those of low digits, whose lanes are summed
// up afterwards.
void ScoreStages::sum_lines(const IntegerDigits &of_row) {
    DigitScores &s = digits;
    s.over_products = RDom({{0, kSides}, {0, of_row.nibbles()}}, "over_products");
    Expr byte = lane * kSides + s.over_products.x;
    const auto product = [&](int of_digit) {
        Expr query = s.query_digits(r, of_row.position(step, s.over_products.y, byte), of_digit);
        return cast<int>(of_row.number(s.key_line(byte, step, k, c), s.over_products.y)) * cast<int>(query);
    };
    step_sums = Func("step_sums");
    step_sums(lane, r, k, step, c) = 0;
    step_sums(lane, r, k, step, c) += product(1);
    step_sums(lane, r, k, step, c) = step_sums(lane, r, k, step, c) << kDigitBits;
    step_sums(lane, r, k, step, c) += product(0);
    s.line_sums = Func("line_sums");
    s.line_sums(lane, r, s.key_of_four, s.four, step, c) =
        step_sums(lane, r, s.four * kKeysAtOnce + s.key_of_four, step, c);
    over_lanes = RDom(0, of_row.lanes / kQuarters, "over_lanes");
    s.quarter_sums(s.key_of_four, s.quarter, r, s.four, step, c) = s.key_offsets(s.key_of_four, s.quarter, r, step);
    s.quarter_sums(s.key_of_four, s.quarter, r, s.four, step, c) +=
        s.line_sums(s.quarter * (of_row.lanes / kQuarters) + over_lanes, r, s.key_of_four, s.four, step, c);
}

void ScoreStages::take_query_digits(const RowSteps::Row &element, const Expr &positions) {
    round_query([&](const Expr &position) { return query_tile(r, element(position)); }, positions, kLargestDigits);
    digits.query_digits = Func("query_digits");
    digits.query_digits(r, d, digits.digit) = digit_of(query_integers(r, d), digits.digit);
}

void ScoreStages::take_key_lines() {
    DigitScores &s = digits;
    const ImageParam &scales = inputs_.stored_key.block_scales, &bytes = inputs_.stored_key.bytes;
    s.dense_key_scales = scales.dim(0).stride() == 1;
    const Expr stride = scales.dim(1).stride();
    s.whole_key_scales = s.dense_key_scales && stride == kQuarters && (one_head || usual_heads.front());
    s.wide_key_scales = s.dense_key_scales && stride == 2 * kQuarters && usual_heads.back() && !one_head;
    s.key_granule = Func("key_granule");
    s.key_granule(k, c) = inputs_.key_granules(key_index(k * kGranuleKeys, c) / kGranuleKeys);
    Expr granule = unsafe_promise_clamped(s.key_granule(k / kGranuleKeys, c), bytes.dim(2).min(), bytes.dim(2).max());
    s.key_line = Func("key_line");
    s.key_line(d, step, k, c) = bytes(step * kLineBytes + d, key_index(k, c) % kGranuleKeys, granule);
}

// Integers are summed up within quarters, whose scales multiply these sums.
Expr ScoreStages::multiply_digits() {
    DigitScores &s = digits;
    const IntegerDigits of_row = inputs_.key_digits();
    s.query_positions = of_row.positions();
    take_query_digits([&](const Expr &position) { return of_row.element(position); }, s.query_positions);
    s.query_offsets = Func("query_offsets");
    // Where all keys have one scale the lines of a short row are summed up as one.
    const Expr joined = of_row.joins_lines() ? select(one_key_scale, of_row.lines(), 1) : Expr(1);
    s.over_quarter = RDom({{0, kQuarterBytes}, {0, of_row.nibbles()}, {0, joined}}, "over_quarter");
    Expr of_quarter =
        of_row.position(step + s.over_quarter.z, s.over_quarter.y, s.quarter * kQuarterBytes + s.over_quarter.x);
    s.query_offsets(s.quarter, r, step) = 0;
    s.query_offsets(s.quarter, r, step) += cast<int>(query_integers(r, of_quarter)) * -kByteOffset;
    s.key_offsets = Func("key_offsets");
    s.key_offsets(s.key_of_four, s.quarter, r, step) = s.query_offsets(s.quarter, r, step);

    take_key_lines();
    s.key_line_scales = Func("key_line_scales");
    s.key_line_scales(s.quarter, step, k, c) = select(one_key_scale, 1.0f, key_scales()(step * kQuarters + s.quarter));

    s.quarter_sums = Func("quarter_sums");
    // A line of int4 has twice as many products for each shuffle of its sums, and takes twice as many words of queries:
    // words pay with more rows alone.
    values_in_digits ? sum_lines(of_row) : sum_words(of_row, joined);

    over_scaled = RDom(0, of_row.lines() / joined, "over_scaled");
    s.quarter_scores = Func("quarter_scores");
    Expr sum = cast<float>(s.quarter_sums(s.key_of_four, s.quarter, r, s.four, over_scaled, c));
    s.quarter_scores(s.key_of_four, s.quarter, r, s.four, c) = asked(s.four, c);
    Expr scale = s.key_line_scales(of_row.block_of_quarter(over_scaled, s.quarter), over_scaled / of_row.scaled_lines(),
                                   s.four * kKeysAtOnce + s.key_of_four, c);
    s.quarter_scores(s.key_of_four, s.quarter, r, s.four, c) += sum * scale;
    s.over_quarters = RDom(0, kQuarters, "over_quarters");
    s.key_scores = Func("key_scores");
    s.key_scores(s.key_of_four, r, s.four, c) = 0.0f;
    s.key_scores(s.key_of_four, r, s.four, c) += s.quarter_scores(s.key_of_four, s.over_quarters, r, s.four, c);
    dot(r, k, c) = s.key_scores(k % kKeysAtOnce, r, k / kKeysAtOnce, c);
    return dot(r, k, c) * (query_unit(r) / static_cast<float>(of_row.unit()));
}

void AttentionStages::weigh_digits(const AttentionInputs &inputs) {
    const DigitScores &s = digits;
    DigitValues &v = value_digits;
    const IntegerDigits of_row = inputs.value_digits();
    value_scales = Func("weight_scales");
    value_scales(s.quarter, k, step, c) = stored_value_scale(inputs, step * kQuarters + s.quarter);
    constexpr int kQuads = kGranuleKeys / kSides, kLanes = kQuads * kQuarters;
    const auto there = [&](const Expr &of_granule) { return of_granule < granules(inputs.key_count - c * chunk_keys); };
    v.lane_scales = Func("lane_scales");
    v.over_lane_scales = RDom({{0, kSides}, {0, granules(chunk_keys)}, {0, of_row.lines()}}, "over_lane_scales");
    v.over_lane_scales.where(there(v.over_lane_scales.y) && !one_value_scale);
    Expr key_of_lane =
        present_granule(inputs, v.over_lane_scales.y) * kGranuleKeys + v.over_lane_scales.x * kQuads + lane / kQuarters;
    v.lane_scales(lane, c) = 0;
    v.lane_scales(lane, c) = max(v.lane_scales(lane, c),
                                 size_of_scale(value_scales(lane % kQuarters, key_of_lane, v.over_lane_scales.z, c)));
    over_scales = RDom(0, kLanes, "over_scales");
    find_weight_unit(v.lane_scales(over_scales, c), kLargestDigits);

    v.weight_digits = Func("weight_digits");
    v.block_digits = Func("block_digits");
    const auto digit_of_weight = [&](const Expr &weight) {
        return digit_of_bits(integer_bits(weight * weight_rate(r, c)), s.digit);
    };
    v.weight_digits(k, r, s.digit, c) = digit_of_weight(weights(r, k, c));
    Expr key = v.quad * kSides + side;
    v.block_digits(side, s.quarter, v.quad, r, s.digit, step, c) =
        digit_of_weight(weights(r, key, c) * value_scales(s.quarter, key, step, c));

    v.over_digits = RDom({{0, kSides}, {0, granules(chunk_keys)}}, "over_digits");
    v.over_digits.where(there(v.over_digits.y));
    v.over_lane_blocks = RDom({{0, kSides}, {0, kQuads / kQuadsOfVector}, {0, granules(chunk_keys)}}, "over_blocks");
    v.over_lane_blocks.where(there(v.over_lane_blocks.z));
    v.lane_digits = Func("lane_digits");
    v.lane_blocks = Func("lane_blocks");
    v.digit_sums = Func("digit_sums");
    v.block_sums = Func("block_sums");
    Expr of_quad = present_granule(inputs, v.over_digits.y) * kQuads + v.quad;
    v.lane_digits(v.quad, r, s.digit, c) = 0;
    v.lane_digits(v.quad, r, s.digit, c) +=
        cast<int>(v.weight_digits(of_quad * kSides + v.over_digits.x, r, s.digit, c));
    Expr of_vector = present_granule(inputs, v.over_lane_blocks.z) * kQuads + v.over_lane_blocks.y * kQuadsOfVector;
    v.lane_blocks(lane, r, step, c) = 0;
    v.lane_blocks(lane, r, step, c) +=
        cast<int>(v.block_digits(v.over_lane_blocks.x, lane % kQuarters, of_vector + lane / (kDigits * kQuarters), r,
                                 lane / kQuarters % kDigits, step, c));
    Expr sum = 0, sum_of_block = 0;
    for (int i = 0; i < kQuads; ++i) {
        sum += v.lane_digits(i, r, s.digit, c);
    }
    for (int i = 0; i < kQuadsOfVector; ++i) {
        sum_of_block += v.lane_blocks((i * kDigits + s.digit) * kQuarters + s.quarter, r, step, c);
    }
    v.digit_sums(r, s.digit, c) = sum;
    v.block_sums(s.quarter, r, s.digit, step, c) = sum_of_block;
}

void AttentionStages::multiply_value_digits(const AttentionInputs &inputs, const StageOptions &options) {
    const DigitScores &s = digits;
    DigitValues &v = value_digits;
    weigh_digits(inputs);
    const IntegerDigits of_row = inputs.value_digits();
    value_positions = of_row.positions();
    v.value_bytes = Func("value_bytes");
    v.value_halves = Func("value_halves");
    value_words = Func("value_words");
    integer_output = Func("integer_output");
    constexpr int kQuads = kGranuleKeys / kSides;

    // In parts of lines, each of as many panels as a pass takes.
    const int panels = options.fetch_pass / of_row.lanes, parts = kPanelsOfLine / panels;
    Expr stored_granule = c * granules(chunk_keys) + granule;
    Expr slot_of_quad = v.quad * kSides + side;
    Expr byte = part / parts * kLineBytes + d;
    Expr stored = inputs.value_byte(byte, stored_granule, nearest_slot(inputs, slot_of_quad, stored_granule));
    fetch_next_values(inputs, options);
    // The others are asked for with the first part of a line.
    Expr asked_slot = v.quad * kSides + max(side, kValuesWithScores);
    Expr nothing = asked_next(asked_slot, part / parts * granules(options.chunk) + granule, c);
    stored += cast<uint8_t>(select(part % parts == 0, nothing, 0.0f));
    v.value_bytes(d, side, part, v.quad, granule, c) = stored;
    v.value_halves(side, d, pair, v.half, part, v.quad, granule, c) =
        v.value_bytes(of_row.byte_of_half(v.half, d), 2 * pair + side, part, v.quad, granule, c);
    constexpr int kWords = kPanelsOfHalf / kPanelsOfWord;
    value_words(side, d, v.word, part, v.quad, granule, c) =
        v.value_halves(side % 2, of_row.place_of_word(v.word, d), side / 2, v.word / kWords, part, v.quad, granule, c);

    v.over_key_quads = RDom({{0, kSides}, {0, kQuads}, {0, granules(chunk_keys)}}, "over_key_quads");
    v.over_key_quads.where(v.over_key_quads.z < granules(inputs.key_count - c * chunk_keys));
    Expr of_chunk = present_granule(inputs, v.over_key_quads.z), of_quad = of_chunk * kQuads + v.over_key_quads.y;
    Expr of_line = panel / kPanelsOfLine, of_lane = lane / (of_row.lanes / kQuarters);
    Expr weight = select(one_value_scale, v.weight_digits(of_quad * kSides + v.over_key_quads.x, r, s.digit, c),
                         v.block_digits(v.over_key_quads.x, of_lane, of_quad, r, s.digit, of_line, c));
    Expr sum = select(one_value_scale, v.digit_sums(r, s.digit, c), v.block_sums(of_lane, r, s.digit, of_line, c));
    Expr value = of_row.value(
        value_words(v.over_key_quads.x, lane, panel / kPanelsOfWord, panel / panels, v.over_key_quads.y, of_chunk, c),
        panel);
    integer_output(r, lane, panel, s.digit, c) = -of_row.value_offset(panel) * sum;
    integer_output(r, lane, panel, s.digit, c) += cast<int>(value) * cast<int>(weight);
    Expr of_panel = d / of_row.lanes;
    const auto output_of = [&](int of_digit) {
        return cast<float>(integer_output(r, d % of_row.lanes, of_panel, of_digit, c));
    };
    chunk_output(r, d, c) = (output_of(1) * static_cast<float>(kDigitBase) + output_of(0)) *
                            (weight_unit(r, c) * of_row.value_unit(of_panel));
}

}  // namespace hattn::generators
