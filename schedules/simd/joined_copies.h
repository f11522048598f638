// A lowering pass: vectors that are copied one after the other.
#pragma once

#include "Halide.h"

namespace hattn::schedules::simd {

// Parts of a vector that lie side by side where they are copied from, and where to, are copied at once. What is stored
// in parts and loaded as a whole waits until all of them are in the cache.
class JoinedCopies : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::Block *block) override;
};

}  // namespace hattn::schedules::simd
