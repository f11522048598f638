// What a pass over the loop over chunks looks for in it.
#pragma once

#include <set>
#include <string>

#include "Halide.h"

namespace hattn::schedules::cuda {

bool is_barrier(const Halide::Internal::Evaluate *statement);

// The loop in which a stage is produced.
class LoopOf : public Halide::Internal::IRVisitor {
public:
    explicit LoopOf(const std::string &stage) : stage_(stage) {}
    const Halide::Internal::For *found = nullptr;
    std::set<std::string> used;  // stages that are used throughout the loop

private:
    using IRVisitor::visit;

    void visit(const Halide::Internal::For *loop) override;
    void visit(const Halide::Internal::ProducerConsumer *stage) override;

    const std::string &stage_;
    const Halide::Internal::For *around_ = nullptr;
    std::set<std::string> consumed_, used_around_;  // by what is around; around that loop
};

// Whether a statement uses a stage.
bool uses(const Halide::Internal::Stmt &statement, const std::string &stage);

// Of the body of the loop, where every chunk begins with a barrier, as does what follows the loop: barriers behind the
// last access to shared memory go.
Halide::Internal::Stmt without_last_barriers(const Halide::Internal::Stmt &body, const std::string &shared);

}  // namespace hattn::schedules::cuda
