// A lowering pass: what lies at known places of a small array.
#pragma once

#include "Halide.h"

namespace hattn::schedules::simd {

// Halide computes the places of numbers that it shuffles on their way to another Func as a vector of integers. LLVM
// folds it, but then takes the numbers one by one. Here they are shuffled out of the whole array.
class KnownLoads : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::Allocate *allocation) override;
    Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override;
    Halide::Expr visit(const Halide::Internal::Let *let) override;
    Halide::Expr visit(const Halide::Internal::Load *load) override;

    Halide::Internal::Scope<int> sizes_;            // of allocations, in elements
    Halide::Internal::Scope<Halide::Expr> values_;  // of vectors of integers
};

}  // namespace hattn::schedules::simd
