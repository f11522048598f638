#include "row_pair_stages.h"

#include "attention_stages.h"

namespace hattn::generators {

using namespace Halide;

Expr ScoreStages::multiply_rows() {
    RowPairScores &s = row_pairs;
    s.key_line = Func("key_line");
    Expr key = key_index(k, c);
    Expr element = inputs_.key_element(line * s.kLineElements + d, key / kGranuleKeys, key % kGranuleKeys);
    s.key_line(d, line, k, c) = asking(element, fetched_line(k, line, c));
    s.key_pairs = Func("key_pairs");
    s.key_pairs(side, s.key_of_pair, s.word, s.quarter, s.half, pair, line, c) =
        s.key_line(s.quarter * s.kQuarterElements + (s.half * 2 + s.word) * s.kWordElements + side, line,
                   pair * kKeysOfPair + s.key_of_pair, c);
    s.words_of_four = Func("words_of_four");
    s.words_of_four(side, s.key_of_four, s.quarter, s.word, s.four, line, c) =
        s.key_pairs(side, s.key_of_four % kKeysOfPair, s.word % 2, s.quarter, s.word / 2,
                    s.four * 2 + s.key_of_four / kKeysOfPair, line, c);
    s.query_words = Func("query_words");
    s.query_words(side, s.key_of_four, s.quarter, s.word, line, r) = cast<bfloat16_t>(
        query_tile(r, line * s.kLineElements + s.quarter * s.kQuarterElements + s.word * s.kWordElements + side));

    s.over_words =
        RDom({{0, s.kWordElements}, {0, s.kQuarterWords}, {0, over_dim.x.extent() / s.kLineElements}}, "over_words");
    const RVar &of_word = s.over_words.x, &word = s.over_words.y, &of_row = s.over_words.z;
    s.word_sums = Func("word_sums");
    s.word_sums(s.key_of_four, s.quarter, r, s.four, c) = 0.0f;
    s.word_sums(s.key_of_four, s.quarter, r, s.four, c) +=
        cast<float>(s.words_of_four(of_word, s.key_of_four, s.quarter, word, s.four, of_row, c)) *
        cast<float>(s.query_words(of_word, s.key_of_four, s.quarter, word, of_row, r));
    const auto of_quarter = [&](int which) { return s.word_sums(k % kKeysAtOnce, which, r, k / kKeysAtOnce, c); };
    dot(r, k, c) = (of_quarter(0) + of_quarter(1)) + (of_quarter(2) + of_quarter(3));
    return dot(r, k, c);
}

// Values of two keys, side by side for all rows of the tile.
void AttentionStages::multiply_row_values(const AttentionInputs &inputs, const StageOptions &options) {
    constexpr int kPairs = kGranuleKeys / 2;
    Expr of_slot = 2 * pair + side, stored_granule = c * granules(chunk_keys) + granule;
    Expr of_row = options.fetch_pass > kWholeHead ? min(likely(d), inputs.value_dim() - 1) : Expr(d);
    fetch_next_values(inputs, options);
    value_pairs = Func("value_pairs");
    value_pairs(side, d, pair, granule, c) =
        asking(nearest_element(inputs, of_row, of_slot, stored_granule),
               asked_next(of_slot, d / options.fetch_pass * granules(options.chunk) + granule, c));
    weight_halves = Func("weight_halves");
    weight_halves(k, r, c) = cast<bfloat16_t>(weights(r, k, c));

    over_key_pairs = RDom({{0, 2}, {0, kPairs}, {0, granules(chunk_keys)}}, "over_key_pairs");
    over_key_pairs.where(over_key_pairs.z < granules(inputs.key_count - c * chunk_keys));
    Expr weight = weight_halves(over_key_pairs.z * kGranuleKeys + 2 * over_key_pairs.y + over_key_pairs.x, r, c);
    Expr value = value_pairs(over_key_pairs.x, d, over_key_pairs.y, over_key_pairs.z, c);
    chunk_output(r, d, c) = 0.0f;
    chunk_output(r, d, c) += cast<float>(weight) * cast<float>(value);
}

}  // namespace hattn::generators
