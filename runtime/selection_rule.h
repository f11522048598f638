// The rule that chooses where nothing was measured. Its constants hold for no machine in particular; what is known of
// machines is in tuning databases.
#pragma once

#include "selection.h"

namespace hattn {

// Those that compute an algorithm for a sequence with so many queries and keys.
const std::vector<const KernelInfo *> &kernels_of(const KernelSet &kernels, hattn_algorithm algorithm,
                                                  const Problem &problem, int64_t query_length, int64_t kv_length);

// Up to this many keys the rule may choose naive by itself, for sequences of the problem.
int64_t most_naive_keys(const KernelSet &kernels, const Problem &problem);

Choice choose_by_rule(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length);

// The smallest tile that holds all rows, else the largest.
const KernelInfo *fitting(const std::vector<const KernelInfo *> &by_rows, int64_t rows);

}  // namespace hattn
