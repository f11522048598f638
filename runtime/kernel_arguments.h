// What a call hands to a kernel, in the order of generators/kernel_inputs.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "buffer.h"
#include "convert.h"
#include "float_environment.h"
#include "kernel_call.h"
#include "stored_keys.h"
#include "tensor.h"

namespace hattn {

// Operands that leave every score as it is, for kernels with more hooks than the problem.
inline constexpr float kNoBias = 0.0f, kNoSlope = 0.0f;
inline constexpr uint8_t kVisible = 1;

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

    // Writes what kernels for any storage take; returns where the next argument goes.
    void **add_to(void **next) {
        for (void *argument : {static_cast<void *>(query),
                               static_cast<void *>(key.elements),
                               static_cast<void *>(value.elements),
                               static_cast<void *>(key.granules),
                               static_cast<void *>(value.granules),
                               static_cast<void *>(bias),
                               static_cast<void *>(mask),
                               static_cast<void *>(alibi_slopes),
                               static_cast<void *>(sink_logits),
                               static_cast<void *>(lse),
                               static_cast<void *>(&key_count),
                               static_cast<void *>(&limits.key_skip),
                               static_cast<void *>(&scale),
                               static_cast<void *>(&softcap),
                               static_cast<void *>(&limits.first_offset),
                               static_cast<void *>(&limits.last_offset),
                               static_cast<void *>(&limits.position_offset),
                               static_cast<void *>(&next_query),
                               static_cast<void *>(&own_output),
                               static_cast<void *>(&output_stride)}) {
            *next++ = argument;
        }
        return next;
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
void call_kernel(const KernelInfo &kernel, const CallSite &site, InputArguments &in, Outputs &...outputs) {
    constexpr size_t kMostArguments = 40;
    void *context = &site.scratch;
    void *arguments[kMostArguments] = {&context};
    void **next = in.add_to(arguments + 1);
    if (!reads_float32(kernel.storage)) {
        next = in.value.add_storage(in.key.add_storage(next));
    }
    ((*next++ = outputs), ...);
    // Of bfloat16 values, which may be subnormal as they are, one that has all the weight is the result.
    [[maybe_unused]] const FlushedSubnormals flushed(site.plan.problem.v_dtype != HATTN_BFLOAT16);
    kernel.function(arguments);
}

}  // namespace hattn
