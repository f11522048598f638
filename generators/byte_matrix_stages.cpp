// Stages of decode whose products are of small matrices of bytes. A kv head's rows, each with two digits, are columns
// of scores and rows of outputs: all rows of a tile take as long as one.
#include "attention_stages.h"

namespace hattn::generators {

using namespace Halide;

namespace {

// Of a chunk.
Expr key_of_quad(const Expr &quad, const Expr &side) {
    return quad / kQuadsOfBlock * kByteDepth + side * kQuadsOfBlock + quad % kQuadsOfBlock;
}

// Of two quarters a word each, and then the next words.
constexpr int kHalfLanes = 2 * kQuarterWords;

}  // namespace

// Keys are rows, queries columns. A line's blocks, which have scales of their own, have sums of their own: queries are
// zeros beside the block.
Expr ScoreStages::multiply_byte_matrices(bool keys_in_place) {
    ByteMatrixScores &m = byte_scores;
    const IntegerDigits of_row = inputs_.key_digits();
    digits.query_positions = of_row.positions();
    take_query_digits([&](const Expr &position) { return of_row.element(position); }, of_row.positions());
    const int blocks = of_row.blocks_of_line(), quads = kQuadsOfBlock / blocks;
    m.over_quads = RDom(0, quads, "over_quads");
    Expr quad = m.key_block * quads + m.over_quads, byte_of_line = quad * kSides + side;
    m.query_matrices = Func("query_matrices");
    m.query_matrices(side, m.column, m.quad, m.nibble, m.key_block, step) = cast<int8_t>(0);
    m.query_matrices(side, m.column, quad, m.nibble, m.key_block, step) = digits.query_digits(
        m.column % kDigitRows, of_row.position(step, m.nibble, byte_of_line), m.column / kDigitRows);

    m.over_bytes = RDom({{0, kByteDepth}, {0, of_row.nibbles()}, {0, 1}}, "over_bytes");
    const RVar byte = m.over_bytes.x, nibble = m.over_bytes.y;
    Expr query = m.query_matrices(byte % kSides, m.column, byte / kSides, nibble, m.key_block, step);
    m.byte_sums = Func("byte_sums");
    m.byte_sums(m.column, k, m.key_block, step, c) = 0;
    m.byte_sums(m.column, k, m.key_block, step, c) += cast<int>(number_of_key(keys_in_place)) * cast<int>(query);

    m.key_block_scales = Func("key_block_scales");
    m.key_block_scales(m.key_block, k, c) = select(one_key_scale, 1.0f, key_scales()(m.key_block));
    m.over_blocks = RDom({{0, blocks}, {0, of_row.lines()}}, "over_blocks");
    const RVar block = m.over_blocks.x, line = m.over_blocks.y;
    // Not from zeros on, which LLVM would call memset() for, and configure AMX again behind it.
    m.column_scores = Func("column_scores");
    m.column_scores(m.column, k, c) = undef<float>();
    Expr before = select(block == 0 && line == 0, asked(k / kGranuleKeys, c), m.column_scores(m.column, k, c));
    m.column_scores(m.column, k, c) = before + cast<float>(m.byte_sums(m.column, k, block, line, c)) *
                                                   m.key_block_scales(line * blocks + block, k, c);
    dot(r, k, c) = m.column_scores(kDigitRows + r, k, c) * static_cast<float>(kDigitBase) + m.column_scores(r, k, c);
    return dot(r, k, c) * (query_unit(r) / static_cast<float>(of_row.unit()));
}

// Of key k, at over_bytes of a line. In place but for the last granule, behind whose keys there need be nothing.
Expr ScoreStages::number_of_key(bool in_place) {
    ByteMatrixScores &m = byte_scores;
    const IntegerDigits of_row = inputs_.key_digits();
    take_key_lines();
    Expr number = of_row.signed_number(digits.key_line(d, step, k, c), m.nibble);
    const auto copied = [&] { return m.key_numbers(m.over_bytes.x, m.over_bytes.y, step, k, c); };
    m.key_numbers = Func("key_numbers");
    if (!in_place) {
        m.key_numbers(d, m.nibble, step, k, c) = number;
        return copied();
    }
    Expr is_whole = c * chunk_keys + (k / kGranuleKeys + 1) * kGranuleKeys <= inputs_.key_count;
    m.over_copies = RDom(0, 1, "over_copies");
    m.over_copies.where(!is_whole);
    m.key_numbers(d, m.nibble, step, k, c) = undef<int8_t>();
    m.key_numbers(d, m.nibble, step, k, c) = number + cast<int8_t>(m.over_copies);
    Expr granule = digits.key_granule(k / kGranuleKeys, c), at = step * kLineBytes + m.over_bytes.x;
    return select(is_whole, of_row.signed_number(inputs_.key_byte_in(granule, at, k % kGranuleKeys), 0), copied());
}

void AttentionStages::multiply_value_byte_matrices(const AttentionInputs &inputs) {
    ByteMatrixValues &v = byte_values;
    const Var &column = byte_scores.column;
    const IntegerDigits of_row = inputs.value_digits();
    value_positions = of_row.positions();
    weigh_blocks(inputs, kLargestDigits);
    pack_weights();
    interleave_values(inputs);

    const auto blocks = [](Expr keys) { return (std::move(keys) + (kByteDepth - 1)) / kByteDepth; };
    v.over_key_blocks = RDom({{0, kByteDepth}, {0, 1}, {0, blocks(chunk_keys)}}, "over_key_blocks");
    v.over_key_blocks.where(v.over_key_blocks.z < blocks(inputs.key_count - c * chunk_keys));
    const RVar byte = v.over_key_blocks.x;
    // See present_granule().
    Expr key_block = min(v.over_key_blocks.z, blocks(inputs.key_count - c * chunk_keys) - 1);
    Expr quad = key_block * kQuadsOfBlock + byte / kSides, of_quad = byte % kSides;
    constexpr int kPanelsOfBlock = kScaleBlock / kMatrixColumns;
    Expr of_block = clamp(select(one_value_scale, 0, panel / kPanelsOfBlock), 0, value_blocks - 1);
    Expr word = v.weight_words(quad, column % kDigitRows, column / kDigitRows, of_block, c);
    Expr weight = reinterpret<int8_t>(cast<uint8_t>(word >> cast<uint32_t>(of_quad * kDigitBits)));
    v.panel_sums = Func("panel_sums");
    v.panel_sums(column, lane, panel, c) = 0;
    v.panel_sums(column, lane, panel, c) +=
        cast<int>(weight) * cast<int>(v.value_numbers(of_quad, lane, panel, quad, c));
    const auto output_of = [&](int digit) {
        return cast<float>(v.panel_sums(digit * kDigitRows + r, d % kMatrixColumns, d / kMatrixColumns, c));
    };
    chunk_output(r, d, c) = (output_of(1) * static_cast<float>(kDigitBase) + output_of(0)) *
                            (weight_unit(r, c) / static_cast<float>(of_row.unit()));
}

// A byte of each of four vectors of keys: words take shifts and masks, where bytes side by side would take shuffles.
void AttentionStages::pack_weights() {
    ByteMatrixValues &v = byte_values;
    const Var &quad = byte_scores.quad;
    Expr low = cast<uint32_t>(0), high = cast<uint32_t>(0);
    for (int i = 0; i < kSides; ++i) {
        const auto byte_in_place = [&](const Expr &word, int from) {
            const int to = i * kDigitBits;
            Expr byte = word & Expr(uint32_t{0xff} << from);
            return to >= from ? byte << Expr(static_cast<uint32_t>(to - from))
                              : byte >> Expr(static_cast<uint32_t>(from - to));
        };
        Expr key = key_of_quad(quad, i);
        Expr bits = integer_bits(weights(r, key, c) * weight_rate(r, c) * value_scales(key, block, c));
        low = low | byte_in_place(bits, 0);
        high = high | byte_in_place(bits + Expr(uint32_t{kDigitBase / 2}), kDigitBits);
    }
    v.weight_words = Func("weight_words");
    v.weight_words(quad, r, digits.digit, block, c) = select(digits.digit == 0, low, high);
}

// A panel's elements are those of one block, as IntegerDigits::matrix_position() has them.
void AttentionStages::interleave_values(const AttentionInputs &inputs) {
    ByteMatrixValues &v = byte_values;
    const Var &quad = byte_scores.quad;
    const IntegerDigits of_row = inputs.value_digits();
    ask_for_quads(inputs);
    Expr key = key_of_quad(quad, side);
    Expr stored_granule = min(c * granules(chunk_keys) + key / kGranuleKeys, granules(inputs.key_count) - 1);
    Expr slot = nearest_slot(inputs, key % kGranuleKeys, stored_granule);
    v.value_lines = Func("lines_of_values");
    v.value_lines(d, side, part, quad, c) = inputs.value_byte(part * kLineBytes + d, stored_granule, slot) +
                                            cast<uint8_t>(v.asked_line(side, part, quad, c));
    v.value_halves = Func("value_halves");
    v.value_halves(side, d, pair, v.half, part, quad, c) =
        v.value_lines(of_row.byte_of_half(v.half, d), 2 * pair + side, part, quad, c);
    v.value_words = Func("value_words");
    v.value_words(side, lane, v.word, part, quad, c) =
        v.value_halves(side % 2, of_row.place_of_word(v.word, lane), side / 2, v.word / 2, part, quad, c);
    v.half_lines = Func("half_lines");
    Expr quarter = 2 * v.half + lane / kQuarterWords % 2;
    v.half_lines(side, lane, v.word_pair, v.half, part, quad, c) = v.value_words(
        side, quarter * kQuarterWords + lane % kQuarterWords, 2 * v.word_pair + lane / kHalfLanes, part, quad, c);

    const int panels = of_row.panels_of_line();
    Expr line = panel / panels, of_line = panel % panels;
    v.value_numbers = Func("value_numbers");
    if (of_row.type == HATTN_INT4) {
        // All of a quarter, which is a block.
        Expr of_nibbles = of_line / kNibbles, byte = lane % kHalfLanes;
        Expr at = byte / kQuarterWords * kHalfLanes + of_nibbles % 2 * kQuarterWords + byte % kQuarterWords;
        v.value_numbers(side, lane, panel, quad, c) = of_row.signed_number(
            v.half_lines(side, at, lane / kHalfLanes, of_nibbles / 2, line, quad, c), of_line % kNibbles);
    } else {
        v.value_numbers(side, lane, panel, quad, c) =
            of_row.signed_number(v.half_lines(side, lane, of_line % 2, of_line / 2, line, quad, c), 0);
    }
}

}  // namespace hattn::generators
