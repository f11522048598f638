// Merging attention states of disjoint key sets.
#include <algorithm>
#include <limits>
#include <vector>

#include "checked.h"
#include "context.h"
#include "convert.h"
#include "device/device_merge.h"
#include "kernel_call.h"
#include "kernel_registry.h"
#include "kernel_scratch.h"
#include "plan.h"
#include "status.h"
#include "structs.h"
#include "tensor.h"
#include "units.h"

namespace hattn {

namespace {

constexpr int64_t kRowsPerMerge = 32;

void check_state(const hattn_tensor &out, const hattn_tensor &lse, const std::string &index,
                 const hattn_tensor &shape) {
    const std::string out_name = "out" + index, lse_name = "lse" + index;
    check_tensor(out, out_name.c_str(), out.dtype, out.device);
    check_float_dtype(out.dtype, (out_name + ": dtype").c_str());
    check_tensor_extents(out, out_name.c_str());
    check_tensor(lse, lse_name.c_str(), HATTN_FLOAT32, lse.device);
    check_same_place(out, out_name.c_str(), shape, "out");
    check_same_place(lse, lse_name.c_str(), shape, "out");
    for (int d = 0; d < 4; ++d) {
        check_tensor_extent(out, out_name.c_str(), kQueryDimensions, d, shape.extent[d], "that of out");
        check_tensor_extent(lse, lse_name.c_str(), kQueryDimensions, d, d < 3 ? shape.extent[d] : 1,
                            d < 3 ? "that of out" : "the width of lse");
    }
    check_unit_stride(out, out_name.c_str());
    check_stride_limit(out, out_name.c_str(), 2, kMaxRowStride);
    check_stride_limit(lse, lse_name.c_str(), 2, kMaxRowStride);
}

void check_outputs(int32_t count, const hattn_tensor *outs, const hattn_tensor *lses, const hattn_tensor &out,
                   const hattn_tensor &lse) {
    check_distinct_elements(out, "out");
    check_distinct_elements(lse, "lse");
    check_apart(out, "out", lse, "lse");
    for (int32_t n = 0; n < count; ++n) {
        const std::string index = "s[" + std::to_string(n) + "]";
        for (const auto &[output, name] : {std::pair(&out, "out"), std::pair(&lse, "lse")}) {
            check_apart(*output, name, outs[n], ("out" + index).c_str());
            check_apart(*output, name, lses[n], ("lse" + index).c_str());
        }
    }
}

// Rows of one head in a tensor.
RowBlock row_block(const hattn_tensor &tensor, const Task &rows) {
    return {tensor.extent[3], rows.rows, 1, tensor.stride[2], 0};
}

// Gathers the states of some rows of one head side by side in float32, as the kernel wants them.
void gather_states(const CallSite &site, int32_t count, const hattn_tensor *outs, const hattn_tensor *lses,
                   const Task &rows, int64_t batch, float *states) {
    const int64_t dim = site.plan.problem.value_dim, elements = rows.rows * dim;
    float *lse = states + count * elements;
    for (int32_t n = 0; n < count; ++n) {
        const hattn_tensor &out = outs[n];
        if (out.dtype != HATTN_FLOAT32) {
            widen(*site.plan.kernels.widen, site.scratch, out.dtype, address(out, batch, rows.head, rows.row),
                  row_block(out, rows), states + n * elements, dense_rows(dim, rows.rows, 1));
        }
        for (int32_t i = 0; i < rows.rows; ++i) {
            if (out.dtype == HATTN_FLOAT32) {
                const float *row = element<const float>(out, batch, rows.head, rows.row + i);
                std::copy(row, row + dim, states + n * elements + i * dim);
            }
            lse[int64_t{n} * rows.rows + i] = *element<const float>(lses[n], batch, rows.head, rows.row + i);
        }
    }
}

// Merges gathered states into out and lse; merged: for rows in float32, where out is of another type.
void merge_rows(const CallSite &site, int32_t count, const float *states, const Task &rows, int64_t batch,
                float *merged, const hattn_tensor &out, const hattn_tensor &lse) {
    static constexpr float kNoSink = -std::numeric_limits<float>::infinity();
    const bool is_float = out.dtype == HATTN_FLOAT32;
    void *place = address(out, batch, rows.head, rows.row);
    call_merge(site, rows, states, count, &kNoSink,
               {is_float ? static_cast<float *>(place) : merged, is_float ? out.stride[2] : out.extent[3], 0,
                element<float>(lse, batch, rows.head, rows.row), lse.stride[2], 0});
    if (!is_float) {
        narrow(*site.plan.kernels.narrow, site.scratch, out.dtype, merged, dense_rows(out.extent[3], rows.rows, 1),
               place, row_block(out, rows));
    }
}

void merge_all(const hattn_context &context, int32_t count, const hattn_tensor *outs, const hattn_tensor *lses,
               const hattn_tensor &out, const hattn_tensor &lse) {
    hattn_plan plan;
    plan.problem = {};
    plan.problem.value_dim = out.extent[3];
    plan.kernels.merge = &only_kernel(*context.target, KernelKind::kMerge);
    plan.kernels.widen = &only_kernel(*context.target, KernelKind::kWiden);
    plan.kernels.narrow = &only_kernel(*context.target, KernelKind::kNarrow);
    const int64_t dim = out.extent[3];
    const int64_t gathered_floats = state_floats(kRowsPerMerge, count, dim);
    require(gathered_floats <= std::numeric_limits<int32_t>::max(), HATTN_NOT_SUPPORTED, "count: is ", count,
            ", which with a head dimension of ", dim, " makes ", gathered_floats, " numbers for ", kRowsPerMerge,
            " rows, but kernels count up to 2^31 - 1");
    const int64_t states = round_up(gathered_floats, 16);
    const int64_t merged = round_up(kRowsPerMerge * dim, 16);
    const int64_t scratch_bytes = merge_scratch_bytes(kRowsPerMerge, count, dim);
    const int64_t bytes =
        checked_add(checked_multiply(checked_add(states, merged, "size of states"), sizeof(float), "size of states"),
                    scratch_bytes, "size of states");
    const ContextMemory memory(context, static_cast<size_t>(bytes), kScratchAlignment);
    auto *gathered = static_cast<float *>(memory.data());
    ScratchArena scratch(gathered + states + merged, static_cast<size_t>(scratch_bytes));
    hattn_attention_args args;
    hattn_attention_args_init(&args);
    const CallSite site{plan, args, scratch};
    for (int64_t b = 0; b < out.extent[0]; ++b) {
        for (int64_t h = 0; h < out.extent[1]; ++h) {
            for (int64_t i = 0; i < out.extent[2]; i += kRowsPerMerge) {
                Task rows{};
                rows.head = static_cast<int32_t>(h);
                rows.heads = 1;
                rows.row = static_cast<int32_t>(i);
                rows.rows = static_cast<int32_t>(std::min(kRowsPerMerge, out.extent[2] - i));
                gather_states(site, count, outs, lses, rows, b, gathered);
                merge_rows(site, count, gathered, rows, b, gathered + states, out, lse);
            }
        }
    }
}

}  // namespace

}  // namespace hattn

hattn_status hattn_merge_states(hattn_context *context, int32_t count, const hattn_tensor *outs,
                                const hattn_tensor *lses, const hattn_tensor *out, const hattn_tensor *lse) {
    return hattn_merge_states_in_queue(context, nullptr, count, outs, lses, out, lse);
}

hattn_status hattn_merge_states_in_queue(hattn_context *context, const hattn_queue *queue, int32_t count,
                                         const hattn_tensor *outs, const hattn_tensor *lses, const hattn_tensor *out,
                                         const hattn_tensor *lse) {
    using namespace hattn;
    return guarded([&] {
        require(context, HATTN_INVALID_ARGUMENT, "context: is null");
        require(count >= 1, HATTN_INVALID_ARGUMENT, "count: is ", count, ", but must be at least 1");
        require(outs, HATTN_INVALID_ARGUMENT, "outs: is null");
        require(lses, HATTN_INVALID_ARGUMENT, "lses: is null");
        require(out, HATTN_INVALID_ARGUMENT, "out: is null");
        require(lse, HATTN_INVALID_ARGUMENT, "lse: is null");
        check_state(*out, *lse, "", *out);
        require(out->extent[3] > 0, HATTN_INVALID_ARGUMENT, "out: extent[3] (head dimension) is ", out->extent[3],
                ", but must be at least 1");
        for (int32_t n = 0; n < count; ++n) {
            check_state(outs[n], lses[n], "s[" + std::to_string(n) + "]", *out);
        }
        check_outputs(count, outs, lses, *out, *lse);
        check_queue_of(*out, queue, "out");
        if (is_empty(*out)) {
            return;
        }
        if (out->device == HATTN_CPU) {
            merge_all(*context, count, outs, lses, *out, *lse);
        } else {
            merge_on_device(queue, count, outs, lses, *out, *lse);
        }
    });
}
