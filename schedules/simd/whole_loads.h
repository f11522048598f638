// A lowering pass: what is shuffled out of vectors that lie one after the other.
#pragma once

#include "Halide.h"

namespace hattn::schedules::simd {

// Halide loads what lies between the first and the last number that a shuffle takes of a Func, which need not begin or
// end where a vector was stored: LLVM then goes through memory, or finds no single instruction for the shuffle. Here it
// loads the vectors as they were stored.
class WholeLoads : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::Allocate *allocation) override;
    Halide::Expr visit(const Halide::Internal::Shuffle *shuffle) override;

    Halide::Internal::Scope<int> sizes_;  // of allocations, in elements
};

}  // namespace hattn::schedules::simd
