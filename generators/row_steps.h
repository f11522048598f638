// Rows of int8 or int4 numbers in steps.
#pragma once

#include <functional>

#include "Halide.h"
#include "hattn/hattn.h"

namespace hattn::generators {

struct RowSteps {
    hattn_dtype type;
    int lanes;         // of float32 vectors
    Halide::Expr dim;  // elements of a row: a multiple of kWholeHead, and at least a step
    int elements;      // of a step: as many as share a scale, or twice that

    Halide::Expr count() const;                          // of steps
    Halide::Expr positions() const;                      // of all steps: at least dim
    Halide::Expr start(const Halide::Expr &step) const;  // first element. The last step may go back over others.

    using Row = std::function<Halide::Expr(Halide::Expr)>;  // of an element, a byte, a block or a position
};

}  // namespace hattn::generators
