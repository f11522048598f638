// A lowering pass: barriers between stages that stay in registers.
#pragma once

#include <set>
#include <string>

#include "Halide.h"
#include "early_tiles.h"

namespace hattn::schedules::cuda {

// Halide puts a barrier behind every stage. Where nothing between two of them touches memory that threads share, the
// second one orders nothing that the first does not, and goes. Tiles on their way have waits and barriers of their
// own (early_tiles.h), whatever else is ordered.
class ThinBarriers : public Halide::Internal::IRMutator {
public:
    explicit ThinBarriers(Tiles early) : early_(std::move(early)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::ProducerConsumer *stage) override;
    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;
    Halide::Internal::Stmt visit(const Halide::Internal::IfThenElse *branch) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Allocate *allocation) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Store *store) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Evaluate *statement) override;
    Halide::Expr visit(const Halide::Internal::Load *load) override;
    Halide::Expr visit(const Halide::Internal::Call *call) override;

    void touch(const std::string &array);

    const Tiles early_;
    std::set<std::string> shared_;  // arrays of all threads
    bool is_ordered_ = false;       // there was a barrier, and no memory was touched since
};

}  // namespace hattn::schedules::cuda
