#include "plan.h"

#include <algorithm>
#include <memory>

#include "checked.h"
#include "kernel_scratch.h"
#include "scratch.h"
#include "status.h"
#include "structs.h"
#include "task.h"
#include "units.h"

namespace hattn {

namespace {

// Every kernel any sequence of the plan may be given.
template<typename Visit>
void for_each_kernel_of(const KernelSet &kernels, Visit &&visit) {
    for (const hattn_algorithm algorithm : kAlgorithms) {
        kernels.for_each_of(algorithm, visit);
    }
}

int64_t scratch_of(const Problem &problem, const KernelSet &kernels) {
    int64_t bytes = 0;
    const auto count = [&](const KernelInfo &kernel, int64_t most_keys) {
        bytes = std::max(bytes, kernel_scratch_bytes(kernel, problem.key_dim, problem.value_dim, most_keys));
    };
    for (const hattn_algorithm algorithm : kAlgorithms) {
        if (const Reach &reach = kernels.reach(algorithm); reach.chosen) {
            const int64_t most_keys = std::min(reach.most_keys, kMaxKeysPerCall);
            kernels.for_each_of(algorithm, [&](const KernelInfo &kernel) { count(kernel, most_keys); });
        }
    }
    if (problem.scores != HATTN_SCORES_NONE) {
        count(*kernels.scores, kernels.scores->tile.keys);
    }
    return bytes;
}

int64_t most_tile_rows(const KernelSet &kernels) {
    int64_t rows = kernels.scores->tile.rows;
    for_each_kernel_of(kernels, [&](const KernelInfo &kernel) { rows = std::max<int64_t>(rows, kernel.tile.rows); });
    return rows;
}

// Queries and outputs of a tile in float32, where they are stored in another type.
int64_t conversion_scratch(const Problem &problem, const KernelSet &kernels) {
    const auto tile = [&](hattn_dtype dtype, int64_t dim) {
        const int64_t bytes = most_tile_rows(kernels) * dim * static_cast<int64_t>(sizeof(float));
        return dtype == HATTN_FLOAT32 ? 0 : round_up(bytes, kScratchAlignment) + int64_t{kScratchAlignment};
    };
    return tile(problem.q_dtype, problem.key_dim) + tile(problem.out_dtype, problem.value_dim);
}

// Of any unit of the plan.
int64_t most_splits(const KernelSet &kernels) {
    return std::max({kernels.reach(HATTN_ALGORITHM_FLASH).most_splits,
                     kernels.reach(HATTN_ALGORITHM_SPLIT_KV).most_splits,
                     kernels.reach(HATTN_ALGORITHM_UNFUSED).most_splits});
}

int64_t merge_scratch(const Problem &problem, const KernelSet &kernels) {
    const int64_t states = std::max<int64_t>(2, most_splits(kernels));
    return merge_scratch_bytes(most_tile_rows(kernels), states, problem.value_dim);
}

// How many tasks the whole problem makes, up to the limit of a wave.
int64_t tasks_of(const Problem &problem, const KernelSet &kernels) {
    int64_t tasks = 1;
    const auto at_most = [](int64_t a, int64_t b) {
        return a > kMaxTasksPerWave / std::max<int64_t>(b, 1) ? kMaxTasksPerWave : a * b;
    };
    const int64_t splits = most_splits(kernels);
    for_each_kernel_of(kernels, [&](const KernelInfo &kernel) {
        const int64_t unit_rows = kernel.tile.rows / std::min<int64_t>(kernel.tile.rows, problem.group_size());
        // Of every sequence there may be rows past its length to fill.
        const int64_t blocks = most_row_blocks(problem, unit_rows) + problem.batch;
        const bool splits_keys = kernel.kind == KernelKind::kSplitKv || kernel.kind == KernelKind::kUnfusedScores;
        tasks = std::max(tasks, at_most(at_most(problem.query_heads, blocks), splits_keys ? splits : 1));
    });
    // A unit's splits have to fit into one wave.
    return std::max(std::min(tasks, kMaxTasksPerWave), splits);
}

// Enough for every worker to have a task, and no more than the problem can use.
int64_t weights_of(const KernelSet &kernels, int64_t head_rows, int32_t threads) {
    const Reach &reach = kernels.reach(HATTN_ALGORITHM_UNFUSED);
    if (!reach.chosen) {
        return 0;
    }
    const int64_t row = std::min(reach.most_keys, reach.longest_split) + 2;
    const int64_t task = kernels.most_rows(HATTN_ALGORITHM_UNFUSED) * row;
    const int64_t wanted = std::max(kWeightPoolFloats, checked_multiply(task, threads, "workspace"));
    const int64_t rows = checked_multiply(head_rows, reach.most_splits, "workspace");
    return rows < wanted / row ? std::max(task, rows * row) : wanted;
}

// One gathers what others add, where a task may have more keys than a call; else it holds rows that a kernel cannot
// write where they belong.
int64_t states_of_worker(const KernelSet &kernels) {
    const auto is_long = [&](hattn_algorithm algorithm) {
        const Reach &reach = kernels.reach(algorithm);
        return reach.chosen && reach.most_keys > kMaxKeysPerCall;
    };
    return std::ranges::any_of(kAlgorithms, is_long) ? 2 : 1;
}

WorkspaceLayout lay_out_workspace(const Problem &problem, const KernelSet &kernels, int32_t threads) {
    WorkspaceLayout layout;
    constexpr int64_t kElementBytes = sizeof(float);
    if (problem.batch == 0 || problem.query_length == 0) {
        return layout;
    }
    const int64_t head_rows = checked_multiply(problem.query_heads, problem.total_rows(), "workspace");
    layout.task_capacity = tasks_of(problem, kernels);
    layout.weight_floats = weights_of(kernels, head_rows, threads);
    if (const int64_t unit = largest_unit_states(problem, kernels); unit > 0) {
        layout.state_floats =
            std::max(unit, std::min(checked_multiply(unit, head_rows, "workspace"), kStatePoolFloats * threads));
    }
    const int64_t rows = most_tile_rows(kernels);
    layout.segment_floats = round_up(rows + state_floats(rows, states_of_worker(kernels), problem.value_dim), 16);
    layout.scratch_bytes = round_up(std::max(scratch_of(problem, kernels), merge_scratch(problem, kernels)) +
                                        conversion_scratch(problem, kernels),
                                    64);

    int64_t used = 0;
    const auto place = [&](int64_t bytes) {
        const int64_t offset = used;
        used = checked_add(used, round_up(bytes, 64), "workspace");
        return static_cast<size_t>(offset);
    };
    layout.tasks_offset =
        place((layout.task_capacity + most_merges(layout.task_capacity)) * static_cast<int64_t>(sizeof(Task)));
    layout.states_offset = place(layout.state_floats * kElementBytes);
    layout.weights_offset = place(layout.weight_floats * kElementBytes);
    layout.sinks_offset = place(problem.query_heads * kElementBytes);
    const bool keeps_lse = problem.scores == HATTN_SCORES_PROBABILITIES;
    layout.lse_offset = place(keeps_lse ? checked_multiply(head_rows, kElementBytes, "workspace") : 0);
    layout.worker_stride = static_cast<size_t>(layout.segment_floats * kElementBytes + layout.scratch_bytes);
    layout.workers_offset = place(checked_multiply(static_cast<int64_t>(layout.worker_stride), threads, "workspace"));
    layout.bytes = static_cast<size_t>(used);
    return layout;
}

}  // namespace

hattn_plan make_plan(const hattn_context &context, const hattn_attention_desc &desc) {
    hattn_plan plan;
    plan.problem = validate_problem(desc);
    plan.executor = context.executor;
    if (plan.problem.threads > 0) {
        plan.executor.threads = plan.problem.threads;
    }
    check_forced_device(context.force, desc.device);
    plan.packs = context.packs;
    plan.tuning = context.tuning;
    if (desc.device != HATTN_CPU) {
        plan.device = make_device_plan(plan.problem, desc.device, context.force, *plan.tuning, plan.packs);
        plan.layout.bytes = plan.device->workspace.host_bytes;
        return plan;
    }
    plan.kernels = select_kernels(plan.problem, *context.target, context.force, *plan.tuning, plan.packs);
    plan.layout = lay_out_workspace(plan.problem, plan.kernels, plan.executor.threads);
    return plan;
}

}  // namespace hattn

hattn_status hattn_plan_create(hattn_context *context, const hattn_attention_desc *desc, hattn_plan **plan) {
    using namespace hattn;
    return guarded([&] {
        require(context, HATTN_INVALID_ARGUMENT, "context: is null");
        require(plan, HATTN_INVALID_ARGUMENT, "plan: is null");
        *plan = std::make_unique<hattn_plan>(make_plan(*context, read_struct(desc, "desc"))).release();
    });
}

void hattn_plan_destroy(hattn_plan *plan) {
    delete plan;
}

hattn_status hattn_plan_workspace_size(const hattn_plan *plan, size_t *bytes) {
    using namespace hattn;
    return guarded([&] {
        require(plan, HATTN_INVALID_ARGUMENT, "plan: is null");
        require(bytes, HATTN_INVALID_ARGUMENT, "bytes: is null");
        *bytes = plan->layout.bytes;
    });
}

hattn_status hattn_plan_device_workspace_size(const hattn_plan *plan, size_t *bytes) {
    using namespace hattn;
    return guarded([&] {
        require(plan, HATTN_INVALID_ARGUMENT, "plan: is null");
        require(bytes, HATTN_INVALID_ARGUMENT, "bytes: is null");
        *bytes = plan->device ? plan->device->workspace.device_bytes : 0;
    });
}
