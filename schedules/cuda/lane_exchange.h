// A lowering pass: values that another thread of the warp holds in its registers.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "Halide.h"

namespace hattn::schedules::cuda {

// Of an array in registers that the threads of a work group hold in parts (gpu/thread_registers.h) a thread may read
// what the thread has stored whose lane differs from its own in one bit: that becomes an exchange of two registers
// (matrix_calls.h). All lanes of a warp, thread_id_x of 32, have to take part. Comes after warp_matrix.h, which puts
// the coordinates of threads into indices, and before gpu/thread_registers.h.
class LaneExchange : public Halide::Internal::IRMutator {
public:
    // Of these arrays, by the names of their Funcs.
    explicit LaneExchange(std::set<std::string> exchanged) : exchanged_(std::move(exchanged)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Store *store) override;
    Halide::Expr visit(const Halide::Internal::Load *load) override;

    const std::set<std::string> exchanged_;
    std::string lane_;                                         // the loop over threads of a warp
    std::map<std::string, std::vector<Halide::Expr>> places_;  // where a thread has stored in the array
};

}  // namespace hattn::schedules::cuda
