// A lowering pass: horizontal sums of several vectors at once.
#pragma once

#include "Halide.h"

namespace hattn::schedules::simd {

// Statements one after the other, each of which adds the lanes of a vector to a number in memory, take eight to ten
// instructions apiece. Here those of four, eight or sixteen vectors of 8 or 16 lanes make one vector of sums, in
// natural order: each round adds the even blocks of two vectors to their odd blocks, and leaves half as many. Rounds of
// single numbers and of pairs stay within 128 bits, where a shuffle takes one cycle. Likewise statements that add the
// sums of each four lanes of 16 integers to four numbers, four apart: those of four vectors make one of 16 sums.
class AdjacentSums : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::Block *block) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Store *store) override;
};

}  // namespace hattn::schedules::simd
