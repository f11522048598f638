// A lowering pass: blocks of 16-bit numbers that a thread moves at once.
#pragma once

#include "Halide.h"

namespace hattn::schedules::cuda {

// Halide takes addresses for aligned only as far as indices show it, and has no instruction for eight 16-bit numbers. A
// store of eight of them, side by side, or zeros, is one of four 32-bit numbers here, to and from multiples of 16
// bytes: a stage that has such vectors promises that they lie there. Of 16 bits there are no others. Runs where indices
// are complete, after gpu/unit_launch.h; throws std::runtime_error where the value is anything else.
class WideRows : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Store *store) override;
};

}  // namespace hattn::schedules::cuda
