#include "device_plan.h"

#include <algorithm>

#include "device_force.h"
#include "runtime/kernel_registry.h"
#include "runtime/selection.h"

namespace hattn {

namespace {

// Whether a compute unit has shared memory for two work groups. (CUDA keeps 1 KiB for each.)
bool holds_two(const DeviceKernelInfo &kernel, const DeviceLimits &device) {
    constexpr int64_t kKept = 1024;
    return 2 * (kernel.shared_bytes + kKept) <= device.shared_bytes + kKept;
}

// The kernels beside the one of the algorithm.
void add_kernels(const Problem &problem, const DeviceLimits &limits, const Force &force, DevicePlan &plan) {
    const int64_t head = head_of(problem);
    if (plan.algorithm == HATTN_ALGORITHM_UNFUSED) {
        const bool is_forced = force.device_kernel && force.device_kernel->kind == KernelKind::kUnfusedValues;
        plan.values = is_forced ? force.device_kernel : &device_kernel(limits, KernelKind::kUnfusedValues, 0, head);
    }
    if (problem.scores != HATTN_SCORES_NONE) {
        const bool probabilities = problem.scores == HATTN_SCORES_PROBABILITIES;
        plan.scores = &device_kernel(limits, probabilities ? KernelKind::kProbabilities : KernelKind::kScores,
                                     hooks_of_scores(problem), head);
    }
}

}  // namespace

DevicePlan make_device_plan(const Problem &problem, hattn_device device, const Force &force,
                            const TuningDatabase &tuning, const KernelPacks &packs) {
    const bool forced = force.algorithm != HATTN_ALGORITHM_AUTO;
    const hattn_algorithm asked = forced ? force.algorithm : problem.algorithm;
    const DeviceTargetInfo &target = usable_device(device, problem.device_id);
    const DeviceStamp stamp = device_stamp(target, problem.device_id);
    TuningFamily family = family_of(problem, asked, nullptr);
    family.device = stamp.key();
    const DeviceLimits limits = device_limits(target, problem.device_id);
    const DeviceChoice choice = force.device_kernel
                                    ? forced_choice(force, problem, limits)
                                    : choose_for_device(problem, limits, asked, tuning.machine.find(family), packs);
    const bool shares_keys = choice.split_keys > 0;
    DevicePlan plan{.target = &target,
                    .algorithm = choice.algorithm,
                    .attention = choice.kernel,
                    .merge = &device_kernel(limits, KernelKind::kMerge, 0, problem.value_dim),
                    .heads = shares_keys ? std::min<int64_t>(choice.kernel->tile.rows, problem.group_size()) : 1,
                    .split_keys = choice.split_keys,
                    .paired_units = holds_two(*choice.kernel, limits) ? limits.compute_units : 0,
                    .why_algorithm = forced                          ? "HATTN_FORCE=" + force.text + "; "
                                     : asked != HATTN_ALGORITHM_AUTO ? "algorithm asked for; "
                                                                     : "",
                    .decider = choice.decider,
                    .entry = choice.entry,
                    .family = family,
                    .cell = tuning_cell(problem, std::max<int64_t>(problem.query_length, 1), problem.kv_length),
                    .stamp = stamp};
    add_kernels(problem, limits, force, plan);
    plan.workspace = lay_out_device_workspace(problem, plan);
    return plan;
}

}  // namespace hattn
