// A lowering pass: blocks of 16-bit numbers that a thread moves at once.
#pragma once

#include "Halide.h"
#include "early_tiles.h"

namespace hattn::schedules::cuda {

// Halide takes addresses for aligned only as far as indices show it, and has no instruction for eight 16-bit numbers. A
// store of eight of them, side by side, or zeros, is one of four 32-bit numbers here, to and from multiples of 16
// bytes: a stage that has such vectors promises that they lie there. Of 16 bits there are no others. Runs where indices
// are complete, after gpu/unit_launch.h; throws std::runtime_error where the value is anything else. Those of early
// tiles are copies that are waited for later.
class WideRows : public Halide::Internal::IRMutator {
public:
    explicit WideRows(Tiles early) : early_(std::move(early)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override;
    Halide::Internal::Stmt visit(const Halide::Internal::ProducerConsumer *stage) override;
    Halide::Internal::Stmt visit(const Halide::Internal::IfThenElse *branch) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Store *store) override;

    const Tiles early_;
    bool is_early_ = false;  // the stage at hand
    Halide::Expr when_;      // of the copy at hand; undefined: always
};

}  // namespace hattn::schedules::cuda
