// How a kernel for int8 or int4 keys and values alone goes through a row where the CPU multiplies bytes that have signs
// and sums up the products of four (FEAT_DotProd of Armv8): in steps of the elements that share a scale. Scales are
// left to what is multiplied by them, and integers that stand for queries and weights have the digits of
// integer_digits.h. Elsewhere see integer_steps.h.
#pragma once

#include "row_steps.h"

namespace hattn::generators {

// Positions count the numbers of a row as vectors have them. Of int8 they are its elements. Of int4 a step has the
// first elements of its bytes, and then the second ones.
struct IntegerBytes : RowSteps {
    IntegerBytes(hattn_dtype type, int lanes, const Halide::Expr &dim);

    int numbers_of_vector() const;  // of a vector
    int vectors() const;            // of a step

    Halide::Expr element(const Halide::Expr &position) const;
    Halide::Expr position(const Halide::Expr &element) const;
    // int8: a number of a vector of a step, given the bytes of the row. Where a vector is a constant one instruction or
    // two make it.
    Halide::Expr number(const Row &byte, const Halide::Expr &step, const Halide::Expr &vector,
                        const Halide::Expr &within) const;
};

}  // namespace hattn::generators
