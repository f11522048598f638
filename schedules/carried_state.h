// A lowering pass: what a stage finds of a state that a later stage of the same loop updates.
#pragma once

#include <map>
#include <string>

#include "Halide.h"

namespace hattn::schedules {

// Names of Funcs, both Tuples: `before` is one of undefined values that stands for what a chunk finds in
// `state`, with the same dimensions.
struct Carried {
    std::string before, state;
};

// No pure definition says what an update has made of a Func so far: loads of the arrays of `before` become loads of the
// state's. On GPUs it runs where indices are those of a thread, after
// gpu/thread_registers.h.
class CarriedState : public Halide::Internal::IRMutator {
public:
    explicit CarriedState(Carried carried) : before_(std::move(carried.before)), state_(std::move(carried.state)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::Allocate *allocation) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Free *freed) override;
    Halide::Expr visit(const Halide::Internal::Load *load) override;

    const std::string before_, state_;
    std::map<std::string, std::string> arrays_;  // of the state, by their number
};

}  // namespace hattn::schedules
