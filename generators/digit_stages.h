// Stages of decode over whole lines of int8 and int4 (IntegerDigits), beside those that it shares with other integers:
// members of ScoreStages and AttentionStages, in whose coordinates they are, with lines for steps.
#pragma once

#include "Halide.h"

namespace hattn::generators {

// Of four values that are taken at a time, those that are asked for with scores.
inline constexpr int kValuesWithScores = 2;

inline constexpr int kQuadsOfVector = 2;  // of weights of blocks, with both digits of each

inline constexpr int kKeysAtOnce = 4;  // whose scores are a vector of quarters
inline constexpr int kKeysOfPair = 2;

struct DigitScores {
    Halide::Var digit{"digit"};
    Halide::Var quarter{"quarter"};  // of a line
    Halide::Expr query_positions;    // of a row
    Halide::Func query_digits;       // (r, position, digit) of query_integers; likewise
    Halide::RDom over_quarter;       // (byte, nibble, joined line) of a quarter
    Halide::Func query_offsets;      // (quarter, r, step) what kByteOffset adds to sums, with its sign changed
    Halide::Func key_offsets;        // (key_of_four, quarter, r, step) the same for each key
    Halide::Func key_granule;        // (granule, c) of the table
    Halide::Func key_line;           // (byte, step, k, c)
    Halide::Func key_line_scales;    // (quarter, step, k, c)
    Halide::Expr dense_key_scales;   // a key's lie side by side
    Halide::Expr whole_key_scales;   // and those of a granule's keys, kQuarters of each
    Halide::Expr wide_key_scales;    // or twice as many
    // Keys are taken four at a time.
    Halide::Var key_of_four{"key_of_four"}, four{"four"};
    Halide::Func quarter_sums;    // (key_of_four, quarter, r, four, step, c) of products
    Halide::Func quarter_scores;  // (key_of_four, quarter, r, four, c)
    Halide::RDom over_quarters;   // of these
    Halide::Func key_scores;      // (key_of_four, r, four, c)
    // Of int4 and few rows, values_in_digits:
    Halide::RDom over_products;  // (side, nibble)
    Halide::Func line_sums;      // (lane, r, key_of_four, four, step, c) step_sums
    // Else, as CPUs interleave within 128 bits: words of two keys, of the first or the second half of each quarter,
    // and then pairs of these.
    Halide::Var key_of_pair{"key_of_pair"};
    Halide::Var half{"half"}, word{"word"};  // of a quarter; of a half, or of a quarter
    Halide::Func key_pairs;                  // (side, key_of_pair, word, quarter, half, pair, step, c) of key_line
    Halide::Func words_of_four;              // (side, key_of_four, quarter, word, four, step, c) of these
    Halide::Var nibble{"nibble"};            // of a byte, if it has two elements
    Halide::Func query_words;  // (side, key_of_four, quarter, nibble, word, step, digit, r) of query_digits, the same
                               // for all keys of a four
    Halide::RDom over_words;   // (side, word and nibble, joined line)
    Halide::Func word_sums;    // (key_of_four, quarter, digit, r, four, step, c) of products
};

struct DigitValues {
    Halide::Var quad{"quad"};  // of a granule's keys, or a chunk's: quad * kSides + side
    Halide::Var half{"half"}, word{"word"};
    Halide::Func weight_digits;  // (k, r, digit, c), and of weights by the scale of values. In_bytes (k, r, digit,
                                 // block, c) of these
    Halide::Func block_digits;   // (side, quarter, quad, r, digit, step, c), where both digits lie side by side
    // Sums and maxima by vectors, whose lanes are the quads of a granule, and quarters.
    Halide::RDom over_lane_scales;  // (slot of a quad, granule, line)
    Halide::Func lane_scales;       // (lane, c) the largest of value_scales
    Halide::RDom over_digits;       // (side, granule)
    Halide::Func lane_digits;       // (quad, r, digit, c) of weight_digits
    Halide::RDom over_lane_blocks;  // (side, quads of a vector, granule)
    Halide::Func lane_blocks;       // (lane, r, step, c) of block_digits: quarters, digits, and kQuadsOfVector quads
    Halide::Func digit_sums;        // (r, digit, c)
    Halide::Func block_sums;        // (quarter, r, digit, step, c)
    Halide::Func value_bytes;       // (byte, side, part, quad, granule, c)
    Halide::Func value_halves;      // (side, byte, pair, half, part, quad, granule, c) of two keys
    Halide::RDom over_key_quads;    // (side, quad, granule) of the keys of a chunk; likewise used in_bytes
};

}  // namespace hattn::generators
