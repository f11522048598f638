// A lowering pass: matrices that are turned on their way to memory.
#pragma once

#include "Halide.h"

namespace hattn::schedules::simd {

// A loop whose passes each store a vector of 16 numbers at a stride, next to those of the pass before, stores 16 times 32
// single numbers of bfloat16: several hundred instructions. Where such a loop is of 32 passes and rounds float32 to
// bfloat16, its 32 vectors are turned in registers: pairs of numbers, rounded, become words, and the 16 x 16 matrix of
// words is shuffled four times. Each shuffle rotates the eight bits that number a word by one, so that after four its row
// and its column have changed places. Numbers are rounded to the nearest, and away from zero where two are; NaNs of
// arithmetic stay NaNs.
class TurnedStores : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;
};

}  // namespace hattn::schedules::simd
