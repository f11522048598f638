// How much the calls of a kernel compute, counted from their arguments: what a stage's time is held against.
#pragma once

#include "generators/kernel_spec.h"

namespace hattn::roofline {

// Of all heads and calls. Scores count those that a tile computes for nothing, since it is taken whole, its keys by the
// granule or block of matrices; they do not count what rows leave out as they see none of the keys.
struct CallWork {
    double key_scores = 0.0;      // products of queries and keys
    double value_scores = 0.0;    // weights that multiply values
    double softmax_scores = 0.0;  // that are stored and made into weights
    double rows = 0.0;            // of queries, and of outputs
    double keys = 0.0;            // of every call
    double state_rows = 0.0;      // rows of the state that a chunk is added to
};

// Adds those of one call of a kernel of attention, with its arguments in the order of generators/kernel_inputs.cpp.
void add_call(const generators::KernelSpec &spec, const schedules::TargetRow &target, void *const *arguments,
              CallWork &work);

}  // namespace hattn::roofline
