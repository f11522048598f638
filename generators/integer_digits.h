// How a kernel for int8 or int4 keys and values alone goes through a row where the CPU multiplies bytes and sums up the
// products of four: a cache line at a time. Scales are left to what is multiplied by them. Elsewhere see
// integer_steps.h.
#pragma once

#include "row_steps.h"
#include "runtime/kernel_table.h"

namespace hattn::generators {

// The integers that stand for queries and weights have two digits to this base, each a byte with its sign.
inline constexpr int kDigits = 2;  // the low one first
inline constexpr int kDigitBits = 8, kDigitBase = 1 << kDigitBits;
inline constexpr int kLargestDigits = 127 * kDigitBase + 127;

// int8, of int16 of no more than kLargestDigits.
Halide::Expr digit_of(const Halide::Expr &integer, const Halide::Expr &digit);
// The same of the lowest 16 bits of integer_bits(), as a call: schedules/simd/word_bytes.h.
Halide::Expr digit_of_bits(const Halide::Expr &bits, const Halide::Expr &digit);
inline constexpr const char *kWordByteCall = "hattn_word_byte";  // of a word of 32 bits, given the number of the byte

inline constexpr int kSides = 4;  // bytes whose products are summed up
inline constexpr int kQuarters = 4;
inline constexpr int kNibbles = 2;  // elements of a byte, the low one first
inline constexpr int kNibbleBits = 4;

// A line has 64 bytes, of which each 128 bits, a quarter, share a scale. An element is an unsigned byte: itself times
// unit(), and kByteOffset.
inline constexpr int kByteOffset = 128;
inline constexpr int kNibbleUnit = 16;

inline constexpr int kLineBytes = 64, kLineDigits = kLineBytes * kNibbles;
inline constexpr int kQuarterBytes = kLineBytes / kQuarters, kQuarterWords = kQuarterBytes / kSides;

static_assert(kWholeLines % kLineDigits == 0 && kWholeLines % kLineBytes == 0);

struct IntegerDigits {
    hattn_dtype type;
    int lanes;         // of float32 vectors
    Halide::Expr dim;  // elements of a row

    int nibbles() const;  // elements of a byte
    int unit() const;
    bool joins_lines() const;  // of a row, if they share a scale: there are few, sums of which have 32 bits
    Halide::Expr lines() const;
    // Lines whose blocks, as many as a line has quarters, have a vector of scales; and a quarter's of these.
    int scaled_lines() const;
    Halide::Expr block_of_quarter(const Halide::Expr &line, const Halide::Expr &quarter) const;

    // Positions of queries: of int8 elements; of int4 the first elements of a line's bytes, then the second ones.
    Halide::Expr positions() const;
    Halide::Expr position(const Halide::Expr &line, const Halide::Expr &nibble, const Halide::Expr &byte) const;
    Halide::Expr element(const Halide::Expr &position) const;
    Halide::Expr number(const Halide::Expr &byte, const Halide::Expr &nibble) const;

    // Of matrices, whose numbers have signs: an int4 element, the first or the second of its byte, is kNibbleUnit times
    // itself. A panel has 16 elements of a block: of int4 the first or the second ones, of int8 two words of each of
    // its quarters.
    int blocks_of_line() const;
    int panels_of_line() const;
    Halide::Expr signed_number(const Halide::Expr &byte, const Halide::Expr &nibble) const;  // int8
    Halide::Expr matrix_position(const Halide::Expr &element) const;  // panels, one after the other

    // Of int4. Sums over rows have bytes of four rows side by side, which CPUs interleave within 128 bits: two by two,
    // the first or the second half of each, and then words of these likewise. A panel has as many sums as there are
    // lanes; its number counts nibbles, halves of halves, halves, and lines.
    Halide::Expr byte_of_half(const Halide::Expr &half,
                              const Halide::Expr &at) const;  // half counts those of all lines
    Halide::Expr place_of_word(const Halide::Expr &word, const Halide::Expr &at) const;  // likewise; in its half
    // Of a byte of a value of a panel. Second elements keep their kNibbleUnit.
    Halide::Expr value(const Halide::Expr &byte, const Halide::Expr &panel) const;
    Halide::Expr value_unit(const Halide::Expr &panel) const;
    Halide::Expr value_offset(const Halide::Expr &panel) const;
    // The sum of an element, given those of all positions: panels, one after the other.
    Halide::Expr sum(const RowSteps::Row &at, const Halide::Expr &element) const;
};

inline constexpr int kPanelsOfWord = kNibbles, kPanelsOfHalf = 2 * kPanelsOfWord, kPanelsOfLine = 2 * kPanelsOfHalf;

}  // namespace hattn::generators
