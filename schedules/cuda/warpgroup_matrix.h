// Products of small matrices, see warp_matrix.h, as those of a warpgroup: four warps, of which each has 16 rows.
#pragma once

#include <string>
#include <vector>

#include "Halide.h"
#include "matrix_nest.h"

namespace hattn::schedules::cuda {

// Matrices in shared memory, as the schedule has them; exchanged_blocks.h puts them where the instructions want them.
struct WarpgroupMatrices {
    int row_elements = 0;  // from a row to the next
    int a_rows = 0;        // of the matrix A there
    int threads = 0;       // of a block, with all warps in one dimension
};

// The threads that nests are within, by the loops over them.
struct WarpLoops {
    std::string lane, warp;
};

// One run of nests, one after the other: instructions that run while what is `between` is done, and a wait for them.
// Counts groups (warpgroup_calls.h) on from `groups`. Throws std::runtime_error where nests are not the products of
// whole matrices: 64 rows by all columns of B for each warpgroup, in steps along what is summed over. B is in shared
// memory, and A there or in registers.
Halide::Internal::Stmt warpgroup_products(const std::vector<Nest> &nests,
                                          const std::vector<Halide::Internal::Stmt> &between, const WarpLoops &loops,
                                          const std::string &shared, const WarpgroupMatrices &matrices, int &groups);

}  // namespace hattn::schedules::cuda
