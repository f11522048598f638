// A lowering pass: tiles of rows in the shared memory that the output goes through when they are gone.
#pragma once

#include "Halide.h"
#include "early_tiles.h"

namespace hattn::schedules::cuda {

// Halide lets stages share memory where one fits into what another has left. The output, in float32, is longer than a
// tile of keys or values, and so has memory of its own, and queries have theirs. Here values and queries follow the
// keys where the output is, each at a multiple of what matrices for a warpgroup begin at; of keys and values there are
// tiles.buffers, in which chunks take turns. The use of queries behind the loop
// over chunks that keeps them there (generators/fragment_stages.cpp), whose value is never taken, goes.
//
// For tiles.warpgroups; comes before early_tiles.h. Throws std::runtime_error where stages overlap in another way.
class OverlaidTiles : public Halide::Internal::IRMutator {
public:
    explicit OverlaidTiles(Tiles tiles) : tiles_(std::move(tiles)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::Allocate *allocation) override;

    const Tiles tiles_;
};

}  // namespace hattn::schedules::cuda
