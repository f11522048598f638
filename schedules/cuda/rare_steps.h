// A lowering pass: conditional stores that seldom have anything to do.
#pragma once

#include <string>

#include "Halide.h"

namespace hattn::schedules::cuda {

// Where a stage has several such stores one after the other, all are skipped by one branch where no thread of the warp
// has a condition that is met (matrix_calls.h). LLVM and ptxas would carry out every one of them under a
// predicate. All lanes of a warp have to take part.
class RareSteps : public Halide::Internal::IRMutator {
public:
    // Of this stage; empty: of none.
    explicit RareSteps(std::string stage) : stage_(std::move(stage)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::ProducerConsumer *stage) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Block *block) override;

    const std::string stage_;
    bool inside_ = false;
};

}  // namespace hattn::schedules::cuda
