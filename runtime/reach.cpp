#include "reach.h"

#include <algorithm>

#include "checked.h"
#include "selection_rule.h"
#include "usual_splits.h"

namespace hattn {

namespace {

// Sequences of up to so many keys are given to the algorithm, in up to so many splits of up to so many keys.
void extend(Reach &reach, int64_t keys, int64_t splits, int64_t split_keys) {
    reach.chosen = true;
    reach.most_keys = std::max(reach.most_keys, keys);
    reach.most_splits = std::max(reach.most_splits, splits);
    reach.longest_split = std::max(reach.longest_split, split_keys);
}

void extend_by_rule(std::array<Reach, 5> &reaches, const KernelSet &kernels, const Problem &problem) {
    // A range of keys starts at a granule, so that of a window as long as a ring is longer than the ring.
    const int64_t kv_length = problem.kv_length + (problem.ring ? kGranuleKeys - 1 : 0);
    for (const hattn_algorithm algorithm : kAlgorithms) {
        const bool by_itself = kernels.algorithm == HATTN_ALGORITHM_AUTO && algorithm != HATTN_ALGORITHM_UNFUSED;
        if (kernels.algorithm == algorithm || by_itself) {
            const bool few = by_itself && algorithm == HATTN_ALGORITHM_NAIVE;
            const int64_t keys = few ? std::min(kv_length, most_naive_keys(kernels, problem)) : kv_length;
            const UsualSplits splits(algorithm);
            extend(reaches[static_cast<size_t>(algorithm)], keys, splits.most(keys), splits.longest(keys));
        }
    }
}

}  // namespace

std::array<Reach, 5> reaches_of(const KernelSet &kernels, const Problem &problem) {
    std::array<Reach, 5> reaches{};
    extend_by_rule(reaches, kernels, problem);
    const TuningCell most = cell_of(problem.query_length, problem.kv_length);
    // Rings take sequences that are longer than what they keep.
    const int last_keys = problem.ring ? kKeyClasses - 1 : most.keys;
    for (const TuningGrids &grids : {kernels.machine, kernels.shipped}) {
        for (TuningCell cell; cell.rows <= most.rows; ++cell.rows) {
            for (cell.keys = 0; cell.keys <= last_keys; ++cell.keys) {
                const TuningEntry *entry = grids.find(cell);
                if (entry && entry->algorithm != HATTN_ALGORITHM_AUTO) {
                    // A range of keys starts at a granule, so it may be longer than what its rows see.
                    const int64_t keys =
                        problem.ring ? problem.kv_length + kGranuleKeys - 1
                                     : std::min(problem.kv_length, largest_of_exponent(cell.keys) + kGranuleKeys - 1);
                    const int64_t split = entry->split_keys;
                    extend(reaches[static_cast<size_t>(entry->algorithm)], keys, split > 0 ? ceil_div(keys, split) : 1,
                           split);
                }
            }
        }
    }
    return reaches;
}

}  // namespace hattn
