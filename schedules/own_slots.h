// A lowering pass: accumulators share no stack with arrays that are indexed.
#pragma once

#include "Halide.h"

namespace hattn::schedules {

// Halide gives an array on the stack the place of one that has been freed. LLVM keeps a place in registers if all that
// is ever put there is found at constant indices; if a loop goes through another array of the same place, accumulators
// are stored whenever a loop over products ends, and loaded after it.
//
// Arrays that are found at constant indices alone are allocated around everything here, so that no other has their
// places before or after them. Those that loops go through go on sharing theirs, which keeps them in the first-level
// cache.
class OwnSlots : public Halide::Internal::IRMutator {
public:
    using IRMutator::mutate;

    Halide::Internal::Stmt mutate(const Halide::Internal::Stmt &statement) override;
};

}  // namespace hattn::schedules
