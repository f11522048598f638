// Introspection: hattn_info and hattn_plan_explain.
#include <cstring>
#include <nlohmann/json.hpp>

#include "context.h"
#include "cpu_features.h"
#include "device/device.h"
#include "kernel_registry.h"
#include "plan.h"
#include "scratch.h"
#include "status.h"
#include "units.h"

namespace hattn {

namespace {

using nlohmann::ordered_json;

ordered_json tile_json(const KernelTile &tile) {
    return {{"rows", tile.rows},
            {"keys", tile.keys},
            {"row_vectors", tile.row_vectors},
            {"key_unroll", tile.key_unroll},
            {"value_unroll", tile.value_unroll}};
}

ordered_json hooks_json(uint32_t hooks) {
    ordered_json names = ordered_json::array();
    for (size_t i = 0; i < kernel_table().hook_count; ++i) {
        if (hooks & kernel_table().hooks[i].bit) {
            names.push_back(kernel_table().hooks[i].name);
        }
    }
    return names;
}

ordered_json device_tile_json(const DeviceTile &tile) {
    return {{"rows", tile.rows},
            {"keys", tile.keys},
            {"head", tile.head},
            {"slices", tile.slices},
            {"thread_rows", tile.thread_rows}};
}

ordered_json devices_json() {
    ordered_json devices = ordered_json::array();
    for (const DeviceTargetInfo &target : device_table().targets) {
        ordered_json kernels = ordered_json::array();
        for (const DeviceKernelInfo &kernel : device_table().kernels) {
            if (std::string_view(kernel.target) == target.name) {
                kernels.push_back({{"name", kernel.name},
                                   {"algorithm", kernel_kind_name(kernel.kind)},
                                   {"hooks", hooks_json(kernel.hooks)},
                                   {"tile", device_tile_json(kernel.tile)}});
            }
        }
        const std::string &why_not = device_unusable(target);
        devices.push_back({{"name", target.name},
                           {"usable", why_not.empty()},
                           {"why_not", why_not.empty() ? ordered_json() : ordered_json(why_not)},
                           {"kernels", kernels}});
    }
    return devices;
}

ordered_json info_json(const hattn_context &context) {
    const KernelTable &table = kernel_table();
    ordered_json targets = ordered_json::array();
    for (size_t i = 0; i < table.target_count; ++i) {
        const TargetInfo &target = table.targets[i];
        targets.push_back({{"name", target.name}, {"needs", target.cpu_features}, {"runnable", is_runnable(target)}});
    }
    ordered_json kernels = ordered_json::array();
    for (size_t i = 0; i < table.kernel_count; ++i) {
        const KernelInfo &kernel = table.kernels[i];
        kernels.push_back({{"name", kernel.name},
                           {"target", kernel.target},
                           {"algorithm", kernel_kind_name(kernel.kind)},
                           {"hooks", hooks_json(kernel.hooks)},
                           {"tile", tile_json(kernel.tile)},
                           {"runnable", is_runnable(*find_target(kernel.target))}});
    }
    return {{"version", hattn_version()},
            {"cpu", {{"model", cpu_model()}, {"cores", available_cores()}}},
            {"threads", context.executor.threads},
            {"target", context.target->name},
            {"force", context.force.text},
            {"targets", targets},
            {"devices", devices_json()},
            {"tuning_database", nullptr},
            {"scratch_overflows", scratch_overflow_count()},
            {"kernels", kernels}};
}

ordered_json explain_device_json(const hattn_plan &plan) {
    const DevicePlan &device = *plan.device;
    const bool split = device.algorithm == HATTN_ALGORITHM_SPLIT_KV;
    return {{"algorithm", algorithm_name(device.algorithm)},
            {"kernel", device.attention->name},
            {"target", device.target->name},
            {"hooks", hooks_json(plan.problem.hooks)},
            {"tile", device_tile_json(device.attention->tile)},
            {"split_keys", split ? kSplitKeys : 0},
            {"workspace_bytes", plan.layout.bytes},
            {"why", device.why_algorithm}};
}

ordered_json explain_json(const hattn_plan &plan) {
    if (plan.device) {
        return explain_device_json(plan);
    }
    const Problem &problem = plan.problem;
    const Choice choice = choose(plan.kernels, problem, std::max<int64_t>(problem.query_length, 1), problem.kv_length);
    const TileShape shape = tile_shape(choice);
    const int64_t split = split_keys(choice.algorithm);
    const int64_t units = problem.kv_heads * ((problem.group_size() + shape.heads - 1) / shape.heads) *
                          most_row_blocks(problem, shape.rows);
    const int64_t splits_per_unit = split > 0 ? std::max<int64_t>(1, (problem.kv_length + split - 1) / split) : 1;
    return {{"algorithm", algorithm_name(choice.algorithm)},
            {"kernel", choice.kernel->name},
            {"values_kernel", choice.values_kernel ? ordered_json(choice.values_kernel->name) : ordered_json()},
            {"target", choice.kernel->target},
            {"hooks", hooks_json(problem.hooks)},
            {"tile", tile_json(choice.kernel->tile)},
            {"split_keys", split},
            {"tasks", units * splits_per_unit},
            {"threads", plan.executor.threads},
            {"workspace_bytes", plan.layout.bytes},
            {"why", plan.kernels.why_algorithm}};
}

void give_text(const std::string &text, char *buffer, size_t capacity, size_t *size) {
    require(buffer || capacity == 0, HATTN_INVALID_ARGUMENT, "buffer: is null, but capacity is ", capacity);
    *size = text.size() + 1;
    require(capacity >= *size, HATTN_CAPACITY_EXCEEDED, "capacity: is ", capacity, ", but the text needs ", *size);
    std::memcpy(buffer, text.c_str(), *size);
}

}  // namespace

}  // namespace hattn

hattn_status hattn_info(hattn_context *context, char *buffer, size_t capacity, size_t *size) {
    using namespace hattn;
    return guarded([&] {
        require(context, HATTN_INVALID_ARGUMENT, "context: is null");
        require(size, HATTN_INVALID_ARGUMENT, "size: is null");
        give_text(info_json(*context).dump(2), buffer, capacity, size);
    });
}

hattn_status hattn_plan_explain(const hattn_plan *plan, char *buffer, size_t capacity, size_t *size) {
    using namespace hattn;
    return guarded([&] {
        require(plan, HATTN_INVALID_ARGUMENT, "plan: is null");
        require(size, HATTN_INVALID_ARGUMENT, "size: is null");
        give_text(explain_json(*plan).dump(2), buffer, capacity, size);
    });
}
