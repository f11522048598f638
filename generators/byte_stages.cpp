// Stages whose products are of bytes with signs: keys and values are int8 or int4, and queries and weights are rounded
// to integers of two digits, in units of the largest that there is.
#include "attention_stages.h"

namespace hattn::generators {

using namespace Halide;

// The products of high digits, times the base, and those of low digits. A sum over all elements of a row has its scales
// if all keys have one, and else those of its blocks multiply their parts of it.
Expr ScoreStages::multiply_bytes(int fetch_block) {
    const IntegerBytes row = inputs_.key_signed_bytes();
    take_query_digits([&](const Expr &position) { return row.element(position); }, row.positions());
    ask_with_steps(fetch_block, row.count());

    begin_integer_sums(row, kSides, row.vectors());
    const auto product = [&](const Expr &of_step, const RVar &vector, const RVar &of_side, const Expr &of_digit) {
        Expr within = lane * kSides + of_side;
        Expr query =
            digits.query_digits(r, of_step * row.elements + vector * row.numbers_of_vector() + within, of_digit);
        return cast<int>(row.number(key_bytes(), of_step, vector, within)) * cast<int>(query);
    };
    Expr nothing = asked(k / fetch_block, c);
    step_sums(lane, r, k, step, c) = 0;
    step_sums(lane, r, k, step, c) += product(step, over_step.y, over_step.x, 1);
    step_sums(lane, r, k, step, c) = step_sums(lane, r, k, step, c) << kDigitBits;
    step_sums(lane, r, k, step, c) += product(step, over_step.y, over_step.x, 0);
    lane_sums(lane, r, k, c) = nothing;
    lane_sums(lane, r, k, c) += cast<float>(step_sums(lane, r, k, over_scaled, c)) * key_scales()(over_scaled);
    lane_integers(lane, digits.digit, r, k, c) = cast<int>(nothing);
    lane_integers(lane, digits.digit, r, k, c) +=
        product(over_integers.z, over_integers.y, over_integers.x, digits.digit);
    lane_floats(lane, r, k, c) = cast<float>(lane_integers(lane, 1, r, k, c)) * static_cast<float>(kDigitBase) +
                                 cast<float>(lane_integers(lane, 0, r, k, c));
    return end_integer_sums();
}

// Bytes of four keys are interleaved, two by two and then pairs of them, so that each 32 bits are of one element.
void AttentionStages::multiply_value_bytes(const AttentionInputs &inputs, const StageOptions &options) {
    ByteValues &v = value_bytes;
    DigitValues &q = value_digits;
    const Var digit = digits.digit, quad = q.quad;
    weigh_blocks(inputs, kLargestDigits);
    q.weight_digits = Func("weight_digits");
    q.weight_digits(k, r, digit, block, c) = digit_of(weight_in_units(k, r, block, c), digit);

    const IntegerBytes row = inputs.value_signed_bytes();
    value_positions = row.positions();
    constexpr int kQuads = kGranuleKeys / kSides;
    Expr stored_granule = c * granules(chunk_keys) + granule;
    const auto byte = [&](Expr at) {
        return inputs.value_byte(std::move(at), stored_granule,
                                 nearest_slot(inputs, quad * kSides + side, stored_granule));
    };
    Expr number = row.number(byte, panel / row.vectors(), panel % row.vectors(), lane);
    if (options.fetch_pass > 0) {
        fetch_next_keys(inputs, options);
        Expr pass = panel / (options.fetch_pass / row.numbers_of_vector());
        number += cast<int8_t>(asked_next(quad * kSides, pass * granules(options.chunk) + granule, c));
    }
    v.value_numbers = Func("value_numbers");
    v.value_halves = Func("value_halves");
    value_words = Func("value_words");
    v.value_numbers(side, lane, panel, quad, granule, c) = number;
    v.value_halves(side, lane, pair, panel, quad, granule, c) =
        v.value_numbers(2 * pair + side, lane, panel, quad, granule, c);
    value_words(side, lane, panel, quad, granule, c) =
        v.value_halves(side % 2, lane, side / 2, panel, quad, granule, c);

    q.over_key_quads = RDom({{0, kSides}, {0, kQuads}, {0, granules(chunk_keys)}}, "over_key_quads");
    q.over_key_quads.where(q.over_key_quads.z < granules(inputs.key_count - c * chunk_keys));
    Expr key = q.over_key_quads.z * kGranuleKeys + q.over_key_quads.y * kSides + q.over_key_quads.x;
    Expr of_block = clamp(select(one_value_scale, 0, panel / row.vectors()), 0, value_blocks - 1);
    Expr value = value_words(q.over_key_quads.x, lane, panel, q.over_key_quads.y, q.over_key_quads.z, c);
    integer_output = Func("integer_output");
    integer_output(r, lane, panel, digit, c) = 0;
    integer_output(r, lane, panel, digit, c) +=
        cast<int>(value) * cast<int>(q.weight_digits(key, r, digit, of_block, c));
    const auto output_of = [&](int of_digit) {
        return cast<float>(integer_output(r, d % row.numbers_of_vector(), d / row.numbers_of_vector(), of_digit, c));
    };
    chunk_output(r, d, c) = (output_of(1) * static_cast<float>(kDigitBase) + output_of(0)) * weight_unit(r, c);
}

}  // namespace hattn::generators
