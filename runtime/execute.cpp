// Running a plan: waves of tasks over the workers, then the score output.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "checked.h"
#include "convert.h"
#include "device/device_execute.h"
#include "execute_args.h"
#include "kernel_call.h"
#include "parallel.h"
#include "plan.h"
#include "score_output.h"
#include "status.h"
#include "structs.h"
#include "tensor.h"
#include "units.h"

namespace hattn {

namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// One execute: its arguments and the parts of its workspace.
struct Execution {
    const hattn_plan &plan;
    const hattn_attention_args &args;
    Task *tasks;
    float *states;
    float *weights;
    const float *no_sinks;  // -inf for every head
    LseView lse;            // where lse goes, if anywhere
    char *workers;

    const float *sinks(int64_t head) const {
        return args.sinks ? args.sinks + head : no_sinks + head;
    }
    // Of a worker: its segment (WorkspaceLayout::segment_floats), then kernel scratch.
    float *worker_states(int32_t worker) const {
        return reinterpret_cast<float *>(workers + static_cast<size_t>(worker) * plan.layout.worker_stride);
    }
    ScratchArena worker_scratch(int32_t worker) const {
        char *memory = reinterpret_cast<char *>(worker_states(worker) + plan.layout.segment_floats);
        return ScratchArena(memory, static_cast<size_t>(plan.layout.scratch_bytes));
    }
};

// Where one worker writes a task's rows.
struct Destination {
    HeadOutput heads;
    bool direct;  // rows of all heads lie at one stride, that of `rows`
    RowOutput rows;
};

// The first of a task's rows in out.
void *output_rows(const Execution &run, const Task &task) {
    const StoredRows rows(run.args.q, run.args.cu_seqlens_q, task.batch);
    return address(run.args.out, rows.batch, task.head, rows.first + task.row);
}

// own: for the rows of a task whose output is of another type than float32, else null.
Destination destination(const Execution &run, const Task &task, float *own, float *unwanted_lse) {
    const hattn_tensor &out = run.args.out;
    const StoredRows rows(run.args.q, run.args.cu_seqlens_q, task.batch);
    const RowBlock dense = dense_rows(run.plan.problem.value_dim, task.rows, task.heads);
    Destination to;
    to.heads = {own ? own : static_cast<float *>(output_rows(run, task)),
                own ? dense.row_stride : out.stride[2],
                own ? dense.head_stride : out.stride[1],
                unwanted_lse,
                task.heads,
                1};
    if (run.lse.data) {
        to.heads.lse = run.lse.at(rows.batch, task.head, rows.first + task.row);
        to.heads.lse_row_stride = run.lse.row_stride;
        to.heads.lse_head_stride = run.lse.head_stride;
    }
    const HeadOutput &h = to.heads;
    // Which way rows of several heads take may not depend on strides, lest these change the last bits.
    to.direct = task.heads == 1 || task.rows == 1;
    to.rows = {h.output, task.heads > 1 ? h.head_stride : h.row_stride, h.lse,
               task.heads > 1 ? h.lse_head_stride : h.lse_row_stride};
    return to;
}

// One of `states` partial states in memory laid out as state_floats() says.
RowOutput partial_state(float *memory, int64_t rows, int64_t states, int64_t which, int64_t value_dim) {
    return {memory + which * rows * value_dim, value_dim, memory + states * rows * value_dim + which * rows, 1};
}

// Attention of a task over some of its keys; all of them, if it is one of unfused, whose weights are there.
void attend(const CallSite &site, const Execution &run, const Task &task, const KeyRange &keys, const float *sinks,
            const RowOutput &result) {
    if (task.values_kernel) {
        call_unfused_values(site, task, keys, run.weights + task.weights, sinks, result);
    } else {
        call_attention(site, task, keys, sinks, result);
    }
}

// Rows of several heads, which lie head by head in the result, from where they take turns.
void scatter_rows(const RowOutput &rows, const Task &task, int64_t value_dim, const HeadOutput &result) {
    for (int64_t i = 0; i < task.rows; ++i) {
        for (int64_t h = 0; h < task.heads; ++h) {
            const int64_t row = i * task.heads + h;
            std::memcpy(result.output + i * result.row_stride + h * result.head_stride,
                        rows.output + row * rows.row_stride, static_cast<size_t>(value_dim) * sizeof(float));
            result.lse[i * result.lse_row_stride + h * result.lse_head_stride] = rows.lse[row * rows.lse_stride];
        }
    }
}

// Keys of one call, for a result that a kernel cannot write by itself.
void run_apart(const CallSite &site, const Execution &run, const Task &task, float *own, const HeadOutput &result) {
    const int64_t value_dim = run.plan.problem.value_dim;
    const RowOutput rows = partial_state(own, int64_t{task.rows} * task.heads, 1, 0, value_dim);
    attend(site, run, task, {task.key, int64_t{task.key} + task.keys}, run.sinks(task.head), rows);
    scatter_rows(rows, task, value_dim, result);
}

// A long key range in segments of bounded size: state 0 gathers, state 1 is the next segment.
void run_segments(const CallSite &site, const Execution &run, const Task &task, float *own, const HeadOutput &result) {
    const int64_t value_dim = run.plan.problem.value_dim;
    const int64_t rows = int64_t{task.rows} * task.heads;
    const int64_t end = int64_t{task.key} + task.keys;
    const RowOutput first = partial_state(own, rows, 2, 0, value_dim);
    const HeadOutput gathered = {first.output, value_dim * task.heads, value_dim, first.lse, task.heads, 1};
    for (int64_t key = task.key, segment = 0; key < end; key += kMaxKeysPerCall, ++segment) {
        const KeyRange keys{key, std::min(key + kMaxKeysPerCall, end)};
        attend(site, run, task, keys, run.no_sinks, partial_state(own, rows, 2, segment == 0 ? 0 : 1, value_dim));
        const bool last = keys.end == end;
        if (segment > 0) {
            call_merge(site, task, own, 2, last ? run.sinks(task.head) : run.no_sinks, last ? result : gathered);
        }
    }
}

// Rows that see no key. Zero is zero bits in every type.
void run_fill(const Execution &run, const Task &task) {
    const hattn_tensor &out = run.args.out;
    const auto bytes = static_cast<size_t>(storage_bytes(out.dtype, run.plan.problem.value_dim));
    const StoredRows rows(run.args.q, run.args.cu_seqlens_q, task.batch);
    for (int64_t h = 0; h < task.heads; ++h) {
        const float sink = task.past_length ? kNegativeInfinity : run.sinks(task.head)[h];
        for (int64_t i = 0; i < task.rows; ++i) {
            const int64_t row = rows.first + task.row + i;
            std::memset(address(out, rows.batch, task.head + h, row), 0, bytes);
            if (run.lse.data) {
                *run.lse.at(rows.batch, task.head + h, row) = sink;
            }
        }
    }
}

void run_attention(const Execution &run, const CallSite &site, const Task &task, float *own, const Destination &to) {
    if (task.kind == TaskKind::kMerge) {
        call_merge(site, task, run.states + task.state, task.states, run.sinks(task.head), to.heads);
    } else if (to.direct && task.keys <= kMaxKeysPerCall) {
        const KeyRange keys{task.key, int64_t{task.key} + task.keys};
        attend(site, run, task, keys, run.sinks(task.head), to.rows);
    } else if (task.keys <= kMaxKeysPerCall) {
        run_apart(site, run, task, own, to.heads);
    } else {
        run_segments(site, run, task, own, to.heads);
    }
}

void run_task(const Execution &run, const Task &task, const Task *next, int32_t worker) {
    ScratchArena scratch = run.worker_scratch(worker);
    const CallSite site{run.plan, run.args, scratch, next};
    float *own = run.worker_states(worker);
    const int64_t rows = int64_t{task.rows} * task.heads;
    const int64_t value_dim = run.plan.problem.value_dim;
    if (task.kind == TaskKind::kSplit) {
        attend(site, run, task, {task.key, int64_t{task.key} + task.keys}, run.no_sinks,
               partial_state(run.states + task.state, rows, task.states, task.split, value_dim));
        return;
    }
    if (task.kind == TaskKind::kFill) {
        run_fill(run, task);
        return;
    }
    // An lse that nobody wants goes before the worker's own states.
    float *unwanted_lse = std::exchange(own, own + rows);
    const hattn_tensor &out = run.args.out;
    if (out.dtype == HATTN_FLOAT32) {
        run_attention(run, site, task, own, destination(run, task, nullptr, unwanted_lse));
        return;
    }
    const RowBlock dense = dense_rows(value_dim, task.rows, task.heads);
    auto *tile = static_cast<float *>(scratch.allocate(static_cast<size_t>(dense.elements()) * sizeof(float)));
    run_attention(run, site, task, own, destination(run, task, tile, unwanted_lse));
    narrow(*run.plan.kernels.narrow, scratch, out.dtype, tile, dense, output_rows(run, task),
           {value_dim, task.rows, task.heads, out.stride[2], out.stride[1]});
    scratch.release(tile);
}

// The first step of a task of unfused.
void run_scores(const Execution &run, const Task &task, const Task *, int32_t worker) {
    if (task.values_kernel) {
        ScratchArena scratch = run.worker_scratch(worker);
        call_unfused_scores({run.plan, run.args, scratch}, task, {task.key, int64_t{task.key} + task.keys},
                            run.weights + task.weights);
    }
}

using Step = void (*)(const Execution &, const Task &, const Task *next, int32_t worker);

// Workers take tasks from a common counter, in order: in turns, where tasks are as long as each other.
void run_tasks(const Execution &run, Step step, const Task *tasks, int64_t count) {
    for_each_task_in_order(run.plan.executor, count, [&](int64_t i, int64_t next, int32_t worker) {
        step(run, tasks[i], next < count ? tasks + next : nullptr, worker);
    });
}

Execution lay_out(const hattn_plan &plan, const hattn_attention_args &args) {
    char *base = static_cast<char *>(args.workspace);
    const WorkspaceLayout &layout = plan.layout;
    auto *no_sinks = reinterpret_cast<float *>(base + layout.sinks_offset);
    std::fill(no_sinks, no_sinks + plan.problem.query_heads, kNegativeInfinity);
    LseView lse;
    if (args.lse.data) {
        lse = {static_cast<float *>(args.lse.data), args.lse.stride[0], args.lse.stride[1], args.lse.stride[2]};
    } else if (plan.problem.scores == HATTN_SCORES_PROBABILITIES) {
        const int64_t rows = args.q.extent[2];
        lse = {reinterpret_cast<float *>(base + layout.lse_offset), plan.problem.query_heads * rows, rows, 1};
    }
    return {plan,
            args,
            reinterpret_cast<Task *>(base + layout.tasks_offset),
            reinterpret_cast<float *>(base + layout.states_offset),
            reinterpret_cast<float *>(base + layout.weights_offset),
            no_sinks,
            lse,
            base + layout.workers_offset};
}

// waits: until results are there, whatever the queue.
void execute(const hattn_plan &plan, const hattn_attention_args &args, bool waits) {
    if (plan.problem.batch == 0 || args.q.extent[2] == 0) {
        return;
    }
    if (plan.device) {
        execute_on_device(plan.problem, *plan.device, args, waits);
        return;
    }
    const Execution run = lay_out(plan, args);
    TaskWriter writer(plan, args, run.tasks);
    while (writer.next_wave()) {
        while (writer.next_batch()) {
            if (writer.has_unfused()) {
                run_tasks(run, run_scores, writer.tasks(), writer.task_count());
            }
            run_tasks(run, run_task, writer.tasks(), writer.task_count());
        }
        run_tasks(run, run_task, writer.merges(), writer.merge_count());
    }
    if (plan.problem.scores != HATTN_SCORES_NONE) {
        write_scores(plan, args, run.lse, run.workers);
    }
}

// Where it is given: it may be left out.
void check_device_workspace(const hattn_plan &plan, const hattn_attention_args &args) {
    if (!plan.device || !args.device_workspace) {
        return;
    }
    const auto begin = reinterpret_cast<uintptr_t>(args.device_workspace);
    const bool addressed = plan.problem.device != HATTN_OPENCL;
    const size_t bytes = plan.device->workspace.device_bytes;
    require(!addressed || begin % kDeviceAlignment == 0, HATTN_INVALID_ARGUMENT, "device_workspace: is ",
            args.device_workspace, ", but must be aligned to ", kDeviceAlignment, " bytes");
    require(args.device_workspace_size >= bytes, HATTN_WORKSPACE_TOO_SMALL, "device_workspace_size: is ",
            args.device_workspace_size, ", but the plan needs ", bytes);
    const ByteRange workspace =
        addressed ? ByteRange{begin, begin + bytes} : ByteRange{0, bytes, args.device_workspace};
    for (const auto &[tensor, name] : tensors_of(args)) {
        require(!overlaps(workspace, byte_range(tensor)), HATTN_INVALID_ARGUMENT, "device_workspace: its memory, from ",
                args.device_workspace, ", overlaps that of ", name, ", from ", tensor.data);
    }
}

void check_workspace(const hattn_plan &plan, const hattn_attention_args &args) {
    check_device_workspace(plan, args);
    require(args.workspace || plan.layout.bytes == 0, HATTN_INVALID_ARGUMENT, "workspace: is null, but the plan needs ",
            plan.layout.bytes, " bytes");
    require(reinterpret_cast<uintptr_t>(args.workspace) % kScratchAlignment == 0, HATTN_INVALID_ARGUMENT,
            "workspace: is ", args.workspace, ", but must be aligned to ", kScratchAlignment, " bytes");
    require(args.workspace_size >= plan.layout.bytes, HATTN_WORKSPACE_TOO_SMALL, "workspace_size: is ",
            args.workspace_size, ", but the plan needs ", plan.layout.bytes);
    const auto begin = reinterpret_cast<uintptr_t>(args.workspace);
    const ByteRange workspace{begin, begin + plan.layout.bytes};
    for (const auto &[tensor, name] : tensors_of(args)) {
        require(!overlaps(workspace, byte_range(tensor)), HATTN_INVALID_ARGUMENT, "workspace: its memory, from ",
                args.workspace, ", overlaps that of ", name, ", from ", tensor.data);
    }
}

}  // namespace

}  // namespace hattn

hattn_status hattn_plan_execute(const hattn_plan *plan, const hattn_attention_args *args) {
    using namespace hattn;
    return guarded([&] {
        require(plan, HATTN_INVALID_ARGUMENT, "plan: is null");
        const hattn_attention_args given = with_used_strides(read_struct(args, "args"));
        check_arguments(plan->problem, given);
        check_workspace(*plan, given);
        execute(*plan, given, false);
    });
}

hattn_status hattn_attention(hattn_context *context, const hattn_attention_desc *desc,
                             const hattn_attention_args *args) {
    using namespace hattn;
    return guarded([&] {
        require(context, HATTN_INVALID_ARGUMENT, "context: is null");
        hattn_attention_args given = with_used_strides(read_struct(args, "args"));
        const hattn_plan plan = make_plan(*context, read_struct(desc, "desc"));
        check_arguments(plan.problem, given);
        const ContextMemory workspace(*context, plan.layout.bytes, kScratchAlignment);
        given.workspace = workspace.data();
        given.workspace_size = plan.layout.bytes;
        check_device_workspace(plan, given);
        execute(plan, given, true);
    });
}
