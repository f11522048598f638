// A lowering pass: blocks of four 32-bit numbers that a thread moves at once.
#pragma once

#include "Halide.h"

namespace hattn::schedules::gpu {

// Halide takes addresses for aligned only as far as indices show it. A stage that has vectors of four floats promises
// that they lie at multiples of 16 bytes. Runs where indices are complete, after unit_launch.h.
class AlignedBlocks : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Expr visit(const Halide::Internal::Load *load) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Store *store) override;
};

}  // namespace hattn::schedules::gpu
