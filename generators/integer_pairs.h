// How a kernel for int8 or int4 keys and values alone goes through a row where the CPU multiplies pairs of integers: in
// steps, each a few whole vectors of 16-bit integers, which are multiplied as such and summed up in 32 bits. Scales are
// left to what is multiplied by them. Elsewhere see integer_steps.h.
#pragma once

#include "row_steps.h"

namespace hattn::generators {

// The largest of the integers that stand for queries and for weights: one of 16 bits with its sign.
inline constexpr int kLargestInteger = 32767;

// int16, of a float of no more than kLargestInteger.
Halide::Expr nearest_integer(const Halide::Expr &value);
Halide::Expr integer_bits(const Halide::Expr &value);  // uint32, of which the lower 16 are its own

// Of the 16-bit numbers in 128 bits, half: those of two vectors that are interleaved at once.
inline constexpr int kQuarter = 4;

// Positions count the numbers of a row as vectors have them, twice as many in each as there are lanes of float32. They
// come in runs: of int4 a step has the first elements of its bytes, and then the second ones; with words, of 16 bits,
// it has the first elements of each, then the second ones, and so on.
struct IntegerPairs : RowSteps {
    // words: vectors are filled with the bytes of a step.
    IntegerPairs(hattn_dtype type, int lanes, const Halide::Expr &dim, bool words = false);

    const bool words;
    int vectors() const;  // of a step

    // int16: the number at a position, given the bytes of the row.
    Halide::Expr number(const Row &byte, const Halide::Expr &position) const;
    int runs() const;
    // With words, int16: those of a row, as many of a step as vectors have numbers; and such a word's number of a run.
    Halide::Expr word(const Row &byte, const Halide::Expr &at) const;
    Halide::Expr part(const Halide::Expr &word, const Halide::Expr &run) const;
    // What to multiply the number at a position by, given the elements of the other factor.
    Halide::Expr query(const Row &element, const Halide::Expr &position) const;
    // Of the pairs of numbers in a lane of each of a step's vectors, given those of blocks of kScaleBlock elements.
    Halide::Expr scale(const Row &of_block, const Halide::Expr &step, const Halide::Expr &lane) const;

    // Sums over rows have numbers in another order: vectors of two rows are interleaved within each 128 bits, as CPUs
    // do that in one instruction. The position whose number a sum has, and a sum given those of all positions.
    Halide::Expr summed(const Halide::Expr &sum) const;
    Halide::Expr sum(const Row &at, const Halide::Expr &element) const;
};

}  // namespace hattn::generators
