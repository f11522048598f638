// A task is a crop: query rows of some heads that share a kv head, against a range of keys.
#pragma once

#include <cstdint>

#include "kernel_table.h"

namespace hattn {

enum class TaskKind : uint8_t {
    kAttention,  // to out and lse
    kSplit,      // to one of the partial states of its unit
    kMerge,      // from the partial states to out and lse
    kFill,       // rows that see no key: to out and lse
};

struct Task {
    TaskKind kind;
    bool past_length;  // kFill: rows past the query length, which not even the sink touches
    int32_t batch;
    int32_t head, heads;  // absolute query heads
    int32_t row, rows;    // of each head
    int32_t key, keys;
    int32_t split, states;  // kSplit: which of how many; kMerge: how many
    int64_t state;          // kSplit, kMerge: where the unit's partial states start in the pool, in floats
    int64_t work;           // of its whole sequence, so that long sequences come first
    int64_t order;          // in which it was made
    int64_t weights;        // unfused: where those of its rows and keys start in their pool, in floats
    const KernelInfo *kernel;
    const KernelInfo *values_kernel;  // unfused: the second kernel, else null

    // Floats between the two kernels of unfused: weights (j, r), then maximum (r) and sum (r).
    int64_t weight_floats() const {
        return values_kernel ? int64_t{rows} * heads * (keys + 2) : 0;
    }
    int64_t cost() const {
        return static_cast<int64_t>(rows) * heads * (keys + 64);
    }
};

}  // namespace hattn
