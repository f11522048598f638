// A lowering pass: rows of the output in blocks of eight or 16 bytes.
#pragma once

#include <string>

#include "Halide.h"
#include "hattn/hattn.h"
#include "schedules/gpu/typed_output.h"

namespace hattn::schedules::cuda {

// How a kernel stores its output from shared memory.
struct StoredRows {
    std::string stage;  // of the rows there; empty: there is none
    int rows = 0;       // that are stored at once
    int warps = 0;
    int head = 0;
    Halide::Expr aligned;  // whether rows of the output are whole blocks of 16 bytes, at multiples of those
};

// What uses the stage is, as the schedule has it, a loop over rows, of which a warp takes one after the other, around
// one over every 32nd element: with a branch for each type (gpu/typed_output.h) some twenty instructions for each
// element of a thread. Where rows are aligned, each thread stores four elements at once here, in all types; what is
// stored for all elements of a row at one place, that is the log-sum-exp, is stored for the first. Comes after
// gpu/unit_launch.h, and before gpu/typed_output.h; throws std::runtime_error where the loops are not as above.
class WideOutput : public Halide::Internal::IRMutator {
public:
    WideOutput(StoredRows stored, const gpu::OutputStorage &storage, std::string output)
        : stored_(std::move(stored)), storage_(storage), output_(std::move(output)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;
    Halide::Internal::Stmt visit(const Halide::Internal::ProducerConsumer *stage) override;

    // Loops and lets around the stores.
    struct Nest;
    Nest nest_of(Halide::Internal::Stmt statement) const;
    Halide::Internal::Stmt wide(const Nest &nest) const;
    struct Place;
    Place place_of(const Nest &nest) const;
    Halide::Internal::Stmt store_four(const Halide::Expr &value, const Halide::Expr &first, hattn_dtype type) const;

    const StoredRows stored_;
    const gpu::OutputStorage storage_;
    const std::string output_;
    std::string lane_, warp_;  // loops over threads
};

}  // namespace hattn::schedules::cuda
