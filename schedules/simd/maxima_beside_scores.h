// A lowering pass: maxima of prefill's scores are taken while scores are in registers.
#pragma once

#include <string>

#include "Halide.h"

namespace hattn::schedules::simd {

// A chunk's scores, with rows in the lanes, and their maxima: names of Funcs.
struct ScoredStages {
    std::string logits, chunk_max;
};

// All that follows waits for a chunk's maxima, which a loop finds in which each vector waits for the one before: no
// products are computed meanwhile. So
//
//     for each block of keys                 for each block of keys
//         scores                     to          scores, and their maxima
//     of chunks that limits cut:             of chunks that limits cut:
//         scores are masked                      scores are masked
//     for each key                               for each key
//         maxima                                     maxima
//
// with the same operations in the same order, so that results have the same bits. Where limits mask scores block by
// block, where vectors are no rows of one key, or where Halide's profiler tells stages apart, all stays as it is.
class MaximaBesideScores : public Halide::Internal::IRMutator {
public:
    explicit MaximaBesideScores(ScoredStages stages) : stages_(std::move(stages)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::Allocate *allocation) override;

    const ScoredStages stages_;
};

}  // namespace hattn::schedules::simd
