#include "device_plan.h"

#include <algorithm>

#include "runtime/kernel_registry.h"
#include "runtime/tensor.h"

namespace hattn {

namespace {

// Up to so many rows per kv head the key range is split over work groups.
constexpr int64_t kDecodeRows = 16;

// The kernel with the least padding, of those the one with the fewest hooks.
const DeviceKernelInfo &choose_kernel(const DeviceTargetInfo &target, KernelKind kind, uint32_t hooks, int64_t head) {
    const DeviceKernelInfo *best = nullptr;
    int largest = 0;
    const auto rank = [](const DeviceKernelInfo &kernel) {
        return std::pair(kernel.tile.head, __builtin_popcount(kernel.hooks));
    };
    for (const DeviceKernelInfo &kernel : device_table().kernels) {
        if (kernel.kind == kind && std::string_view(kernel.target) == target.name && serves(kernel.hooks, hooks)) {
            largest = std::max(largest, kernel.tile.head);
            if (kernel.tile.head >= head && (!best || rank(kernel) < rank(*best))) {
                best = &kernel;
            }
        }
    }
    require(best, HATTN_NOT_SUPPORTED, "key_dim and value_dim: the larger is ", head, ", but kernels for ", target.name,
            " hold heads of at most ", largest);
    return *best;
}

void check_supported(const Problem &problem, hattn_algorithm algorithm, const char *name) {
    for (const hattn_dtype dtype : {problem.q_dtype, problem.k_dtype, problem.v_dtype, problem.out_dtype}) {
        require(dtype == HATTN_FLOAT32, HATTN_NOT_SUPPORTED, "dtype: is ", dtype_name(dtype), ", but device ", name,
                " computes float32 alone");
    }
    require(problem.scores == HATTN_SCORES_NONE, HATTN_NOT_SUPPORTED, "scores: is ", static_cast<int>(problem.scores),
            ", but device ", name, " has no score output");
    const bool known = algorithm == HATTN_ALGORITHM_AUTO || algorithm == HATTN_ALGORITHM_FLASH ||
                       algorithm == HATTN_ALGORITHM_SPLIT_KV;
    require(known, HATTN_NOT_SUPPORTED, "algorithm: is ", algorithm_name(algorithm), ", but device ", name,
            " has flash and split_kv");
}

}  // namespace

DevicePlan make_device_plan(const Problem &problem, hattn_device device, const Force &force) {
    const DeviceTargetInfo *target = find_device_target(device);
    require(target, HATTN_NOT_SUPPORTED, "device: is ", static_cast<int>(device), " (", device_name(device),
            "), but this build has kernels for ", compiled_devices());
    const bool forced = force.algorithm != HATTN_ALGORITHM_AUTO;
    const hattn_algorithm asked = forced ? force.algorithm : problem.algorithm;
    check_supported(problem, asked, target->name);
    const std::string &unusable = device_unusable(*target, problem.device_id);
    require(unusable.empty(), HATTN_NOT_SUPPORTED, "device: is ", static_cast<int>(device), " (", target->name,
            "), but this machine has none that works: ", unusable);

    DevicePlan plan{target, asked, nullptr, nullptr, 1, ""};
    plan.why_algorithm = asked != HATTN_ALGORITHM_AUTO ? "asked for" : "built-in rule by rows per kv head";
    if (forced) {
        plan.why_algorithm = "HATTN_FORCE=";
        plan.why_algorithm += force.text;
    }
    if (plan.algorithm == HATTN_ALGORITHM_AUTO) {
        const bool few_rows = problem.query_length * problem.group_size() <= kDecodeRows;
        plan.algorithm = few_rows ? HATTN_ALGORITHM_SPLIT_KV : HATTN_ALGORITHM_FLASH;
    }
    const bool split = plan.algorithm == HATTN_ALGORITHM_SPLIT_KV;
    const int64_t head = std::max(problem.key_dim, problem.value_dim);
    plan.attention = &choose_kernel(*target, split ? KernelKind::kSplitKv : KernelKind::kFlash, problem.hooks, head);
    plan.merge = &choose_kernel(*target, KernelKind::kMerge, 0, problem.value_dim);
    if (split) {
        plan.heads = std::min<int64_t>(plan.attention->tile.rows, problem.group_size());
    }
    plan.workspace = lay_out_device_workspace(problem, plan);
    return plan;
}

}  // namespace hattn
