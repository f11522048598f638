// A lowering pass: weights of prefill are computed among the products that read them first.
#pragma once

#include <string>

#include "Halide.h"

namespace hattn::schedules::simd {

// Names of Funcs: exponentials of a chunk's scores, with rows in the lanes; their sums; and a block of weighted values.
struct WeighedStages {
    std::string weights, chunk_sum, chunk_output;
};

// A core looks some hundred instructions ahead: a loop over exponentials and one over products, which wait for what is
// loaded of values, take the sum of their times. So
//
//     for each key                           for each key of a granule
//         weights                                its weights, added up
//     for each key                           for each key, of the first block of values
//         weights, added up           to         weights of the key that is a granule ahead, added up
//     for each block of values and key           weighted values
//         weighted values                    for each other block and key
//                                                weighted values
//
// with the same operations on the same numbers in the same order, so that results have the same bits. A granule ahead,
// lest products wait for the weights that they stand beside. The code of a block is there twice. Where no block is
// computed, as there are no elements, weights stay where they were. All stays as it is where another stage reads
// weights before products do, where registers hold no vectors of rows, or where Halide's profiler tells stages apart.
//
// Behind OwnSlots, which leaves no allocations between stages.
class WeightsBesideValues : public Halide::Internal::IRMutator {
public:
    explicit WeightsBesideValues(WeighedStages stages) : stages_(std::move(stages)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::Allocate *allocation) override;

    const WeighedStages stages_;
};

}  // namespace hattn::schedules::simd
