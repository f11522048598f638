// A lowering pass: the upper halves of float32 numbers, which are bfloat16 ones.
#pragma once

#include "Halide.h"

namespace hattn::schedules::simd {

// Calls of generators::kUpperHalfCall become what they stand for: 16 bits of a number are picked where they lie, and
// two vectors of them, stored one after the other in turns, are the halves of words. Halide's own casts shift, narrow
// and interleave. Halves that turned_stores.h has taken before are words already.
class UpperHalves : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Expr visit(const Halide::Internal::Call *call) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Block *block) override;
};

// The number whose upper half a value is, or undefined.
Halide::Expr number_of_half(const Halide::Expr &value);

// Words of which the numbers' upper halves are the lower and the upper half.
Halide::Expr word_of_halves(const Halide::Expr &lower, const Halide::Expr &upper);

}  // namespace hattn::schedules::simd
