// Which kernel computes a sequence. The choice depends on that sequence's lengths alone, never on the batch around it
// nor on threads, so that neither changes a bit of the result.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "force.h"
#include "problem.h"

namespace hattn {

// The kernels that fit a problem on a target, per algorithm by rows per tile.
struct KernelSet {
    const TargetInfo *target = nullptr;
    std::vector<const KernelInfo *> naive, flash, split_kv;
    std::vector<const KernelInfo *> unfused_scores, unfused_values;  // in pairs with the same rows
    const KernelInfo *scores = nullptr;                              // with the hooks that the score output wants
    const KernelInfo *probabilities = nullptr;
    const KernelInfo *merge = nullptr;
    const KernelInfo *widen = nullptr, *narrow = nullptr;  // between 16 bits and float32
    hattn_algorithm algorithm = HATTN_ALGORITHM_AUTO;      // forced or asked for
    std::string why_algorithm;

    const std::vector<const KernelInfo *> &of(hattn_algorithm algorithm) const;
    std::array<std::vector<const KernelInfo *> *, 5> all();
};

struct Choice {
    hattn_algorithm algorithm;
    const KernelInfo *kernel;
    const KernelInfo *values_kernel;  // the second kernel of unfused, else null
    int64_t heads;                    // query heads of one kv head that share a tile
};

// Throws StatusError if the request cannot be met.
KernelSet select_kernels(const Problem &problem, const TargetInfo &target, const Force &force);

// For one sequence of query_length rows per head and kv_length keys.
Choice choose(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length);

// Keys per split of split_kv and of unfused, and the most keys one kernel call is given.
inline constexpr int64_t kSplitKeys = 512;
inline constexpr int64_t kUnfusedSplitKeys = 1024;
inline constexpr int64_t kMaxKeysPerCall = 8192;

// The most query heads of a tile; see the limits of strides in execute_args.cpp.
inline constexpr int64_t kMaxTileHeads = 8;

// Keys per split of an algorithm that splits the key range and whose tiles hold rows of several heads; 0: it does not.
int64_t split_keys(hattn_algorithm algorithm);

// Whether any sequence of the plan may be computed by the algorithm.
bool may_choose(const KernelSet &kernels, hattn_algorithm algorithm);

}  // namespace hattn
