// A lowering pass: several AMX tiles of sums at a time.
#pragma once

#include "Halide.h"

namespace hattn::schedules::x86 {

// Halide 21 has one tile of sums in a register at a time, each product of which loads both of its sides. Where a loop
// takes one tile after the other, four of its passes become one here: their products are in one loop, so that what they
// share is loaded once (LLVM sees that it is the same), five loads for four products in place of eight, and products of
// four sums are under way together. Throws std::runtime_error if a tile is used in another way than Halide's.
class JoinedTiles : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;
};

}  // namespace hattn::schedules::x86
