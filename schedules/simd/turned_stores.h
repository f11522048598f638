// A lowering pass: matrices that are turned on their way to memory.
#pragma once

#include "Halide.h"

namespace hattn::schedules::simd {

// A loop whose passes each store a vector of 8 or 16 numbers at a stride, next to those of the pass before, stores
// number by number. Here as many passes as a vector has lanes are one: their vectors are turned in registers. Each
// round of shuffles rotates the bits that number an element of the square matrix by one, so that after three or four
// rounds its row and its column have changed places. Numbers that are rounded from float32 to bfloat16 are turned in
// pairs, as words: twice as many passes are one; they are rounded to the nearest, and away from zero where two are;
// NaNs of arithmetic stay NaNs.
// Vectors that are loaded number by number are stored so too, in the loop: turning them saves no more than 6% of a
// kernel's time, and takes many times as many instructions (decision 0087).
class TurnedStores : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;
};

}  // namespace hattn::schedules::simd
