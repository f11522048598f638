// A lowering pass: what a chunk reads of the state that the chunk before has left.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "Halide.h"

namespace hattn::schedules::cuda {

// Halide's update of a Func over a loop may not use another Func that uses the first one. So stages that do use a call
// in its place (generators::kCarriedCall), of a load of something that is stored as the state is, and of the number of
// an element of its Tuple: which here becomes a load of that element, from the same place. Comes before
// gpu/thread_registers.h.
class CarriedState : public Halide::Internal::IRMutator {
public:
    explicit CarriedState(std::string state) : state_(std::move(state)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::Allocate *allocation) override;
    Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override;
    Halide::Expr visit(const Halide::Internal::Let *let) override;
    Halide::Expr visit(const Halide::Internal::Call *call) override;

    const std::string state_;
    std::vector<std::string> arrays_;            // of its elements
    std::map<std::string, Halide::Expr> lets_;  // around the expression at hand
};

}  // namespace hattn::schedules::cuda
