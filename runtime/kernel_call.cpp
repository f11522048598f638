#include "kernel_call.h"

#include <algorithm>

#include "buffer.h"
#include "checked.h"
#include "execute_args.h"
#include "kernel_arguments.h"
#include "kernel_registry.h"

namespace hattn {

namespace {

// A task in parts that one call can index and its tile holds: some rows of all heads, or some heads of one row each.
// What a row's result is does not depend on the others of a call, as long as the keys are the same.
// visit(part, first of its rows among the task's).
template<typename Visit>
void for_each_part(const Task &task, int64_t most_heads, int64_t most_rows, Visit &&visit) {
    const int64_t heads = std::min<int64_t>({task.heads, most_heads, most_rows});
    const int64_t rows = heads < task.heads ? 1 : std::min<int64_t>(task.rows, most_rows / heads);
    for (int64_t i = 0; i < task.rows; i += rows) {
        for (int64_t h = 0; h < task.heads; h += heads) {
            Task part = task;
            part.row += static_cast<int32_t>(i);
            part.rows = static_cast<int32_t>(std::min(rows, task.rows - i));
            part.head += static_cast<int32_t>(h);
            part.heads = static_cast<int32_t>(std::min(heads, task.heads - h));
            visit(part, i * task.heads + h);
        }
    }
}

int64_t rows_of(const Task &task) {  // of all its heads
    return int64_t{task.rows} * task.heads;
}

template<typename Visit>
void for_each_part(const CallSite &site, const Task &task, Visit &&visit) {
    for_each_part(task, most_heads_per_call(site.args), rows_per_call(site.args, rows_of(task)), visit);
}

const float *sinks_of(const Task &part, const Task &task, const float *sinks) {
    return sinks ? sinks + (part.head - task.head) : nullptr;
}

// Sums of bfloat16 numbers have none that is infinite: where queries, keys or values are, or their products, the state
// is a NaN, which need not be what float32 makes of them, and so is the log-sum-exp, as kernels that multiply terms
// have it.
bool has_nan(const RowOutput &result, int64_t rows) {
    bool any = false;
    for (int64_t r = 0; r < rows; ++r) {
        const float lse = result.lse[r * result.lse_stride];
        any |= lse != lse;
    }
    return any;
}

// What a part writes: rows of its task's result from `first` on.
struct ResultBuffers {
    ResultBuffers(const RowOutput &result, const Task &part, int64_t first, int64_t value_dim)
        : output(result.output + first * result.row_stride, {{value_dim, 1}, {rows_of(part), result.row_stride}}),
          lse(result.lse + first * result.lse_stride, {{rows_of(part), result.lse_stride}}) {}

    Buffer output;  // (d, r)
    Buffer lse;     // (r)
};

}  // namespace

void call_attention(const CallSite &site, const Task &task, const KeyRange &keys, const float *sinks,
                    const RowOutput &result) {
    const auto attend = [&](const KernelInfo &kernel) {
        return [&](const Task &part, int64_t first) {
            InputArguments in(site, part, keys, sinks_of(part, task, sinks), nullptr, 0);
            ResultBuffers out(result, part, first, site.plan.problem.value_dim);
            in.ask_for(result.output + first * result.row_stride, result.row_stride, site);
            call_kernel(kernel, site, in, out.output, out.lse);
        };
    };
    for_each_part(site, task, attend(*task.kernel));
    if (leaves_not_finite(*task.kernel) && has_nan(result, rows_of(task))) {
        const KernelInfo &plain = *site.plan.kernels.plain_flash.back();
        for_each_part(task, most_heads_per_call(site.args), plain.tile.rows, attend(plain));
    }
}

namespace {

// What lies between the two kernels of unfused: that of all rows of a task, of which a part has some.
struct WeightBuffers {
    template<typename T>
    WeightBuffers(T *memory, const Task &task, int64_t keys, const Task &part, int64_t first)
        : weights(memory + first * keys, {{keys, 1}, {rows_of(part), keys}}),
          maximum(memory + rows_of(task) * keys + first, {{rows_of(part), 1}}),
          sum(memory + rows_of(task) * (keys + 1) + first, {{rows_of(part), 1}}) {}

    Buffer weights;       // (j, r)
    Buffer maximum, sum;  // (r)
};

}  // namespace

void call_unfused_scores(const CallSite &site, const Task &task, const KeyRange &keys, float *weights) {
    for_each_part(site, task, [&](const Task &part, int64_t first) {
        InputArguments in(site, part, keys, nullptr, nullptr, 0);
        WeightBuffers out(weights, task, keys.size(), part, first);
        call_kernel(*task.kernel, site, in, out.weights, out.maximum, out.sum);
    });
}

void call_unfused_values(const CallSite &site, const Task &task, const KeyRange &keys, const float *weights,
                         const float *sinks, const RowOutput &result) {
    for_each_part(site, task, [&](const Task &part, int64_t first) {
        InputArguments in(site, part, keys, sinks_of(part, task, sinks), nullptr, 0);
        WeightBuffers given(weights, task, keys.size(), part, first);
        ResultBuffers out(result, part, first, site.plan.problem.value_dim);
        call_kernel(*task.values_kernel, site, in, given.weights, given.maximum, given.sum, out.output, out.lse);
    });
}

void call_merge(const CallSite &site, const Task &task, const float *states, int64_t count, const float *sinks,
                const HeadOutput &result) {
    const int64_t value_dim = site.plan.problem.value_dim;
    const int64_t all_rows = rows_of(task);
    for_each_part(site, task, [&](const Task &part, int64_t first) {
        const int64_t rows = rows_of(part);
        const int64_t i = part.row - task.row, h = part.head - task.head;
        Buffer partial_output(states + first * value_dim,
                              {{value_dim, 1}, {rows, value_dim}, {count, all_rows * value_dim}});
        Buffer partial_lse(states + all_rows * count * value_dim + first, {{rows, 1}, {count, all_rows}});
        Buffer sink_logits(sinks_of(part, task, sinks), {{part.heads, 1}});
        int32_t heads = part.heads;
        Buffer output(result.output + i * result.row_stride + h * result.head_stride,
                      {{value_dim, 1}, {part.rows, result.row_stride}, {part.heads, result.head_stride}});
        Buffer lse(result.lse + i * result.lse_row_stride + h * result.lse_head_stride,
                   {{part.rows, result.lse_row_stride}, {part.heads, result.lse_head_stride}});
        void *context = &site.scratch;
        void *arguments[] = {&context, partial_output, partial_lse, sink_logits, &heads, output, lse};
        site.plan.kernels.merge->function(arguments);
    });
}

void call_scores(const CallSite &site, const Task &task, const KeyRange &keys, const float *lse, int64_t lse_stride,
                 float *scores, int64_t row_stride) {
    const hattn_scores mode = site.plan.problem.scores;
    InputArguments in(site, task, keys, nullptr, lse, lse_stride);
    if (mode == HATTN_SCORES_RAW || mode == HATTN_SCORES_CAPPED) {
        in.see_every_key();
    }
    Buffer output(scores, {{keys.size(), 1}, {task.rows, row_stride}});
    call_kernel(*task.kernel, site, in, output);
}

}  // namespace hattn
