// The space of choices for a problem, as data.
#pragma once

#include <string>
#include <vector>

#include "candidate.h"
#include "shape.h"

namespace hattn::autotune {

// The kernels that fit a problem, per algorithm, from hattn_info() and hattn_plan_explain().
struct AlgorithmKernels {
    std::string algorithm;
    std::vector<Tile> tiles;
};

// Every choice that is worth a look: tiles of the algorithm, times its split lengths, times whether heads share tiles.
std::vector<Candidate> space_of(const Shape &shape, const std::vector<AlgorithmKernels> &kernels);

// Of those, what may give the bits of `usual`: other rows of the same chunks and splits. The planner knows the rest,
// see sums_alike() in runtime/selection_entry.h.
std::vector<Candidate> invariant_space(const std::vector<Candidate> &space, const Candidate &usual);

}  // namespace hattn::autotune
