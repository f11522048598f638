// A lowering pass: arrays that threads of a work group hold in parts.
#pragma once

#include "Halide.h"

namespace hattn::schedules::gpu {

// Halide gives a Func in MemoryType::Register that is computed for the work group as a whole an array outside the
// loops over threads, of which each thread then has a copy in full, and indexes it with the thread's coordinates. Where
// each thread only touches what it has written itself, which the schedules that use this ensure, its part is enough:
// the pass takes the thread's coordinates out of the indices, which have to be constants then, and shortens the array.
class ThreadRegisters : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;
    Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override;
    Halide::Expr visit(const Halide::Internal::Let *let) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Allocate *allocation) override;
    Halide::Expr visit(const Halide::Internal::Load *load) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Store *store) override;

    struct Array {
        int64_t group_size = 0;   // elements of all threads together
        int64_t thread_size = 0;  // elements that indices of a thread reach so far
    };
    bool uses_threads(const Halide::Expr &value) const;
    Halide::Expr index_in_thread(const std::string &array, const Halide::Expr &index);

    std::vector<std::string> threads_;           // variables of the loops around the statement at hand
    std::map<std::string, Halide::Expr> outer_;  // lets around the statement at hand
    std::map<std::string, Array> arrays_;
};

}  // namespace hattn::schedules::gpu
