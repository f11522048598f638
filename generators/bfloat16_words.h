// How a kernel for bfloat16 keys and values alone takes a row, of whole vectors of 32-bit words: each word is two
// elements, the second its upper half, which is the number, and the first its lower one. By itself an element is
// widened and shifted; of words, an instruction makes a vector of first, or of second elements.
#pragma once

#include <functional>

#include "Halide.h"

namespace hattn::generators {

// Positions count the first elements of a vector of words, and then the second ones.
struct Bfloat16Words {
    int lanes;  // of float32 vectors

    Halide::Expr element(const Halide::Expr &position) const;
    Halide::Expr position(const Halide::Expr &element) const;
    // The first element of the vector of words at a position; and a number in float32, given that and the bits of
    // elements.
    Halide::Expr start(const Halide::Expr &position) const;
    Halide::Expr number(const std::function<Halide::Expr(Halide::Expr)> &bits, const Halide::Expr &start,
                        const Halide::Expr &position) const;

    int elements() const;  // of a vector of words
};

}  // namespace hattn::generators
