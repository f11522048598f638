#include "kernel_call.h"

#include <algorithm>

#include "buffer.h"
#include "checked.h"
#include "convert.h"
#include "execute_args.h"
#include "stored_keys.h"
#include "subnormals.h"
#include "tensor.h"

namespace hattn {

namespace {

// Operands that leave every score as it is, for kernels with more hooks than the problem.
constexpr float kNoBias = 0.0f, kNoSlope = 0.0f;
constexpr uint8_t kVisible = 1;

// The crop of a bias or mask that a task sees, as (j, i, h).
template<typename T>
struct OperandView {
    const T *data;
    int64_t key_stride = 0, row_stride = 0, head_stride = 0;

    OperandView(const hattn_tensor &tensor, const T &neutral, const Task &task, const StoredRows &rows,
                int64_t first_key)
        : data(&neutral) {
        if (!tensor.data) {
            return;
        }
        key_stride = used_stride(tensor, 3);
        row_stride = used_stride(tensor, 2);
        head_stride = used_stride(tensor, 1);
        data = static_cast<const T *>(tensor.data) + task.batch * used_stride(tensor, 0) + task.head * head_stride +
               (rows.first + task.row) * row_stride + first_key * key_stride;
    }
};

// Query rows of a task in float32: as they are, or brought into it.
class QueryRows {
public:
    QueryRows(const CallSite &site, const Task &task, const StoredRows &rows)
        : scratch_(site.scratch), row_stride_(site.args.q.stride[2]), head_stride_(site.args.q.stride[1]) {
        const Problem &problem = site.plan.problem;
        const void *stored = address(site.args.q, rows.batch, task.head, rows.first + task.row);
        data_ = static_cast<const float *>(stored);
        if (problem.q_dtype == HATTN_FLOAT32) {
            return;
        }
        const RowBlock from = {problem.key_dim, task.rows, task.heads, row_stride_, head_stride_};
        const RowBlock to = dense_rows(problem.key_dim, task.rows, task.heads);
        own_ = static_cast<float *>(scratch_.allocate(static_cast<size_t>(to.elements()) * sizeof(float)));
        widen(*site.plan.kernels.widen, scratch_, problem.q_dtype, stored, from, own_, to);
        data_ = own_;
        row_stride_ = to.row_stride;
        head_stride_ = to.head_stride;
    }
    ~QueryRows() {
        if (own_) {
            scratch_.release(own_);
        }
    }
    QueryRows(const QueryRows &) = delete;
    QueryRows &operator=(const QueryRows &) = delete;

    const float *data() const {
        return data_;
    }
    int64_t row_stride() const {
        return row_stride_;
    }
    int64_t head_stride() const {
        return head_stride_;
    }

private:
    ScratchArena &scratch_;
    const float *data_;
    int64_t row_stride_, head_stride_;
    float *own_ = nullptr;
};

// Everything that attention and score kernels take in common.
struct InputArguments {
    InputArguments(const CallSite &site, const Task &task, const KeyRange &keys, const float *sinks,
                   const float *known_lse, int64_t known_lse_stride)
        : sequence(site.plan.problem, site.args, task.batch),
          kv_head(task.head / site.plan.problem.group_size()),
          bias_view(site.args.bias, kNoBias, task, sequence.queries, keys.begin),
          mask_view(site.args.mask, kVisible, task, sequence.queries, keys.begin),
          query_rows(site, task, sequence.queries),
          query(query_rows.data(), {{site.plan.problem.key_dim, 1},
                                    {task.rows, query_rows.row_stride()},
                                    {task.heads, query_rows.head_stride()}}),
          key(site, site.args.k, site.args.k_scale, task.batch, kv_head, keys),
          value(site, site.args.v, site.args.v_scale, task.batch, kv_head, keys),
          bias(bias_view.data, {{keys.size(), bias_view.key_stride},
                                {task.rows, bias_view.row_stride},
                                {task.heads, bias_view.head_stride}}),
          mask(mask_view.data, {{keys.size(), mask_view.key_stride},
                                {task.rows, mask_view.row_stride},
                                {task.heads, mask_view.head_stride}}),
          alibi_slopes(site.args.alibi_slopes ? site.args.alibi_slopes + task.head : &kNoSlope,
                       {{task.heads, site.args.alibi_slopes ? 1 : 0}}),
          sink_logits(sinks, {{task.heads, 1}}),
          lse(known_lse, {{task.rows, known_lse_stride}}),
          key_count(static_cast<int32_t>(keys.size())),
          scale(site.plan.problem.scale),
          softcap(site.plan.problem.softcap),
          limits(sequence.limits(task.row, keys.begin)) {
        // Some of a task's rows may see none of the first keys that others do.
        limits.key_skip = std::min(limits.key_skip, std::max(key_count - 1, 0));
    }

    // Rows of the result, and of the next task's queries.
    void ask_for(const float *rows, int64_t row_stride, const CallSite &site) {
        const auto behind_query = [&](const void *other) {
            return (static_cast<int64_t>(reinterpret_cast<uintptr_t>(other)) -
                    static_cast<int64_t>(reinterpret_cast<uintptr_t>(query_rows.data()))) /
                   static_cast<int64_t>(sizeof(float));
        };
        own_output = behind_query(rows);
        output_stride = row_stride;
        if (site.next && site.plan.problem.q_dtype == HATTN_FLOAT32) {
            const StoredRows next(site.args.q, site.args.cu_seqlens_q, site.next->batch);
            next_query = behind_query(address(site.args.q, next.batch, site.next->head, next.first + site.next->row));
        }
    }

    void see_every_key() {
        limits.first_offset = static_cast<int32_t>(-2 * kMaxExtent);
        limits.last_offset = static_cast<int32_t>(2 * kMaxExtent - 1);
    }

    const Sequence sequence;
    const int64_t kv_head;
    const OperandView<float> bias_view;
    const OperandView<uint8_t> mask_view;
    QueryRows query_rows;
    Buffer query;
    StoredKeys key, value;
    Buffer bias, mask, alibi_slopes, sink_logits, lse;
    int32_t key_count;
    float scale, softcap;
    TileLimits limits;
    int64_t next_query = 0, own_output = 0, output_stride = 0;
};

// Calls a kernel in the order of generators/kernel_inputs.cpp.
template<typename... Outputs>
void call(const KernelInfo &kernel, const CallSite &site, InputArguments &in, Outputs &...outputs) {
    constexpr size_t kMostArguments = 40;
    void *context = &site.scratch;
    void *arguments[kMostArguments] = {&context,
                                       in.query,
                                       in.key.elements,
                                       in.value.elements,
                                       in.key.granules,
                                       in.value.granules,
                                       in.bias,
                                       in.mask,
                                       in.alibi_slopes,
                                       in.sink_logits,
                                       in.lse,
                                       &in.key_count,
                                       &in.limits.key_skip,
                                       &in.scale,
                                       &in.softcap,
                                       &in.limits.first_offset,
                                       &in.limits.last_offset,
                                       &in.limits.position_offset,
                                       &in.next_query,
                                       &in.own_output,
                                       &in.output_stride};
    void **next = arguments + 21;
    if (!reads_float32(kernel.storage)) {
        next = in.value.add_storage(in.key.add_storage(next));
    }
    ((*next++ = outputs), ...);
    // Of bfloat16 values, which may be subnormal as they are, one that has all the weight is the result.
    [[maybe_unused]] const FlushedSubnormals flushed(site.plan.problem.v_dtype != HATTN_BFLOAT16);
    kernel.function(arguments);
}

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
    for_each_part(task, most_heads_per_call(site.args), rows_of(task), visit);
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
            call(kernel, site, in, out.output, out.lse);
        };
    };
    for_each_part(site, task, attend(*task.kernel));
    if (multiplies_terms(task.kernel->storage) && has_nan(result, rows_of(task))) {
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
        call(*task.kernel, site, in, out.weights, out.maximum, out.sum);
    });
}

void call_unfused_values(const CallSite &site, const Task &task, const KeyRange &keys, const float *weights,
                         const float *sinks, const RowOutput &result) {
    for_each_part(site, task, [&](const Task &part, int64_t first) {
        InputArguments in(site, part, keys, sinks_of(part, task, sinks), nullptr, 0);
        WeightBuffers given(weights, task, keys.size(), part, first);
        ResultBuffers out(result, part, first, site.plan.problem.value_dim);
        call(*task.values_kernel, site, in, given.weights, given.maximum, given.sum, out.output, out.lse);
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
    call(*task.kernel, site, in, output);
}

}  // namespace hattn
