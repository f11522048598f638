// Stages of scores over rows of bfloat16 numbers with the head in the lanes, whose products are of pairs along a row:
// members of ScoreStages, in whose coordinates they are. Keys are taken four at a time, as lines of integers are
// (DigitScores): 32 bits of each, a pair, change places, so that nothing is summed up across lanes. As CPUs interleave
// within 128 bits: pairs of two keys, of the first or the second half of each quarter of a line, and then two of these.
#pragma once

#include "Halide.h"
#include "digit_stages.h"
#include "integer_digits.h"

namespace hattn::generators {

struct RowPairScores {
    static constexpr int kWordElements = 2, kQuarterWords = 4;
    static constexpr int kQuarterElements = kWordElements * kQuarterWords, kLineElements = kQuarters * kQuarterElements;

    Halide::Var key_of_four{"key_of_four"}, four{"four"};
    Halide::Var key_of_pair{"key_of_pair"};
    Halide::Var quarter{"quarter"};          // of a line
    Halide::Var half{"half"}, word{"word"};  // of a quarter; of a half, or of a quarter
    Halide::Func key_line;                   // (element, line, k, c)
    Halide::Func key_pairs;                  // (side, key_of_pair, word, quarter, half, pair, line, c) of key_line
    Halide::Func words_of_four;              // (side, key_of_four, quarter, word, four, line, c) of these
    Halide::Func query_words;  // (side, key_of_four, quarter, word, line, r), the same for all keys of a four
    Halide::RDom over_words;   // (side, word, line)
    Halide::Func word_sums;    // (key_of_four, quarter, r, four, c) of products
};

}  // namespace hattn::generators
