// A lowering pass: barriers between stages that stay in registers.
#pragma once

#include <set>
#include <string>

#include "Halide.h"

namespace hattn::schedules::cuda {

// Halide puts a barrier behind every stage. Where nothing between two of them touches memory that threads share, the
// second one orders nothing that the first does not, and goes.
class ThinBarriers : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;
    Halide::Internal::Stmt visit(const Halide::Internal::IfThenElse *branch) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Allocate *allocation) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Store *store) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Evaluate *statement) override;
    Halide::Expr visit(const Halide::Internal::Load *load) override;
    Halide::Expr visit(const Halide::Internal::Call *call) override;

    void touch(const std::string &array);

    std::set<std::string> registers_;  // arrays of a thread
    bool is_ordered_ = false;          // there was a barrier, and no memory was touched since
};

}  // namespace hattn::schedules::cuda
