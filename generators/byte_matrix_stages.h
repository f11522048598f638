// Stages of decode over int8 and int4 by an instruction for small matrices of bytes: members of ScoreStages and
// AttentionStages, in whose coordinates they are, defined in_byte_matrices. Queries and weights have digits, see
// integer_digits.h.
#pragma once

#include "Halide.h"

namespace hattn::generators {

// Rows of a tile, each of which has a column of scores, or a row of outputs, for each digit: digit * kDigitRows + row.
inline constexpr int kDigitRows = 8;
// What the instruction sums up over: bytes of a key, or values of so many keys.
inline constexpr int kByteDepth = 64;
// Four bytes lie side by side there: of a key those that follow each other, and of values those of four keys that are
// as far from each other as a block of keys has quads.
inline constexpr int kQuadsOfBlock = 16;

struct ByteMatrixScores {
    Halide::Var column{"column"};
    Halide::Var nibble{"nibble"};        // of a byte; elements of int8 have one
    Halide::Var key_block{"key_block"};  // of a line, or of a row, that has scales of its own
    Halide::Var quad{"quad"};            // byte = quad * kSides + side
    Halide::RDom over_quads;             // of a block
    Halide::RDom over_bytes;             // (byte, nibble, once) of a line
    Halide::RDom over_copies;            // (0), of a granule whose keys are copied; defined with keys_in_place
    Halide::RDom over_blocks;            // (block of a line, line) of a key
    Halide::Func query_matrices;         // (side, column, quad, nibble, key_block, step) int8; 0 beside the block
    Halide::Func key_numbers;            // (byte, nibble, step, k, c) int8
    Halide::Func byte_sums;              // (column, k, key_block, step, c) int32 of products
    Halide::Func key_block_scales;       // (key_block, k, c) of a row
    Halide::Func column_scores;          // (column, k, c)
};

struct ByteMatrixValues {
    Halide::RDom over_key_blocks;  // (key of a block, once, block of kByteDepth keys) of a chunk
    Halide::Func weight_words;     // (quad, r, digit, block, c) uint32, the bytes of a quad's keys
    Halide::Func next_starts;      // (granule, c) where values start, of the block behind
    Halide::Func asked_line;       // (side, part, quad, c) 0; asks for that line there
    // Lines of four keys, as CPUs interleave within 128 bits, quarters: of two keys the first or the second half of
    // each quarter; words of all four; and the words of two quarters, two at a time.
    Halide::Var half{"half"};            // of a quarter, or of a line
    Halide::Var word{"word"};            // of a quarter
    Halide::Var word_pair{"word_pair"};  // likewise
    Halide::Func value_lines;            // (byte, side, part, quad, c)
    Halide::Func value_halves;           // (side, byte, pair, half, part, quad, c)
    Halide::Func value_words;            // (side, lane, word, part, quad, c)
    Halide::Func half_lines;             // (side, lane, word_pair, half, part, quad, c)
    Halide::Func value_numbers;          // (side, lane, panel, quad, c) int8
    Halide::Func panel_sums;             // (column, lane, panel, c) int32 of products
};

}  // namespace hattn::generators
