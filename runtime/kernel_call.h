// Calling kernels: crops of tensors as Halide buffers.
#pragma once

#include <cstdint>

#include "plan.h"
#include "scratch.h"
#include "sequence.h"
#include "task.h"

namespace hattn {

// Rows r of a tile, counted through its heads first.
struct RowOutput {
    float *output;
    int64_t row_stride;  // between rows of output
    float *lse;
    int64_t lse_stride;
};

// The same as (row, head) of out and lse.
struct HeadOutput {
    float *output;
    int64_t row_stride, head_stride;
    float *lse;
    int64_t lse_row_stride, lse_head_stride;
};

struct CallSite {
    const hattn_plan &plan;
    const hattn_attention_args &args;
    ScratchArena &scratch;
    const Task *next = nullptr;  // likely to be this worker's; kernels ask for its queries
};

// Attention of the task's rows over `keys`; sinks: one logit per head of the task.
void call_attention(const CallSite &site, const Task &task, const KeyRange &keys, const float *sinks,
                    const RowOutput &result);

// The same in two steps. The first leaves weights, of task.weight_floats(), for the second.
void call_unfused_scores(const CallSite &site, const Task &task, const KeyRange &keys, float *weights);
void call_unfused_values(const CallSite &site, const Task &task, const KeyRange &keys, const float *weights,
                         const float *sinks, const RowOutput &result);

// Merges task.states partial states (see state_floats) of the task's rows.
void call_merge(const CallSite &site, const Task &task, const float *states, int64_t count, const float *sinks,
                const HeadOutput &result);

// The score output of up to a tile of rows of one head, over `keys`. lse: of these rows, read for probabilities.
void call_scores(const CallSite &site, const Task &task, const KeyRange &keys, const float *lse, int64_t lse_stride,
                 float *scores, int64_t row_stride);

}  // namespace hattn
