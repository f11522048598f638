// Introspection: hattn_info, hattn_plan_explain and hattn_plan_explain_sequence.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "context.h"
#include "cpu_features.h"
#include "device/device.h"
#include "device/device_driver.h"
#include "device/device_stamp.h"
#include "kernel_registry.h"
#include "plan.h"
#include "scratch.h"
#include "selection_entry.h"
#include "status.h"
#include "tensor.h"
#include "tuning_json.h"
#include "units.h"

namespace hattn {

namespace {

using nlohmann::ordered_json;

ordered_json tuning_json(const TuningDatabase &tuning) {
    return {{"path", tuning.path},
            {"state", tuning_state_name(tuning.state)},
            {"why_ignored", tuning.why_ignored},
            {"entries", tuning.machine.size()},
            {"invariant", tuning.machine.has_invariant_only()},
            {"shipped_entries", tuning.shipped().size()},
            {"stamp", stamp_json(machine_stamp())}};
}

// Null: none, it is one of the library's.
ordered_json origin_json(const KernelPack *pack) {
    return pack ? ordered_json(pack->path()) : ordered_json();
}

// Whether plans for its target may take it, as far as CPUs go that kernels are made for.
bool is_for_this_cpu(const KernelInfo &kernel) {
    const std::vector<const KernelInfo *> of_cpu =
        kernels_of_cpu(*find_target(kernel.target), kernel.kind, kernel.storage, kernel.hooks);
    return std::ranges::find(of_cpu, &kernel) != of_cpu.end();
}

ordered_json kernel_json(const KernelInfo &kernel, const KernelPack *pack) {
    return {{"name", kernel.name},
            {"target", kernel.target},
            {"algorithm", kernel_kind_name(kernel.kind)},
            {"storage", kStorageNames[static_cast<size_t>(kernel.storage)]},
            {"hooks", hook_name_list(kernel.hooks)},
            {"tile", tile_json(kernel.tile)},
            {"needs", kernel.cpu_features},
            {"made_for", kernel.made_for},
            {"for_this_cpu", is_for_this_cpu(kernel)},
            {"from_memory", kernel.from_memory},
            {"runnable", is_runnable(kernel)},
            {"pack", origin_json(pack)}};
}

// What tensor cores multiply, if a kernel uses them.
ordered_json matrix_type_json(const DeviceKernelInfo &kernel) {
    return kernel.matrix_type == HATTN_FLOAT32 ? ordered_json() : ordered_json(dtype_name(kernel.matrix_type));
}

// The devices themselves, by device_id.
ordered_json found_json(const DeviceTargetInfo &target, const TuningTable &tuning) {
    const DeviceDriver &driver = device_driver(target.device);
    ordered_json found = ordered_json::array();
    for (int32_t id = 0; id < driver.count(); ++id) {
        const DeviceStamp stamp = device_stamp(target, id);
        ordered_json device = {{"device_id", id}};
        device.update(device_stamp_json(stamp));
        device["shared_bytes"] = driver.shared_bytes(id);
        device["warpgroups"] = device_limits(target, id).warpgroups;
        device["tuning_entries"] = tuning.entries_of_device(stamp.key());
        found.push_back(std::move(device));
    }
    return found;
}

ordered_json kernel_json(const DeviceKernelInfo &kernel, const KernelPack *pack) {
    return {{"name", kernel.name},
            {"algorithm", kernel_kind_name(kernel.kind)},
            {"hooks", hook_name_list(kernel.hooks)},
            {"tile", tile_json(kernel.tile)},
            {"matrix_type", matrix_type_json(kernel)},
            {"capability", kernel.tile.warpgroups ? ordered_json(kWarpgroupCapability) : ordered_json()},
            {"shared_bytes", kernel.shared_bytes},
            {"fat_binary", kernel.fat_binary != nullptr},
            {"pack", origin_json(pack)}};
}

ordered_json devices_json(const TuningTable &tuning, const KernelPacks &packs) {
    ordered_json devices = ordered_json::array();
    for (const DeviceTargetInfo &target : device_table().targets) {
        ordered_json kernels = ordered_json::array();
        for_each_device_kernel(packs, [&](const DeviceKernelInfo &kernel) {
            if (std::string_view(kernel.target) == target.name && find_device_kernel(kernel.name, packs) == &kernel) {
                kernels.push_back(kernel_json(kernel, packs.pack_of(&kernel)));
            }
        });
        const std::string &why_not = device_unusable(target, 0);
        devices.push_back({{"name", target.name},
                           {"usable", why_not.empty()},
                           {"why_not", why_not.empty() ? ordered_json() : ordered_json(why_not)},
                           {"found", why_not.empty() ? found_json(target, tuning) : ordered_json::array()},
                           {"kernels", kernels}});
    }
    return devices;
}

// The context's own, as of its tuning database, and those of folders of packs.
ordered_json warnings_json(const hattn_context &context) {
    ordered_json warnings = context.packs.warnings();
    if (!context.warning.empty()) {
        warnings.push_back(context.warning);
    }
    return warnings;
}

ordered_json info_json(const hattn_context &context) {
    const KernelTable &table = kernel_table();
    ordered_json targets = ordered_json::array();
    for (size_t i = 0; i < table.target_count; ++i) {
        const TargetInfo &target = table.targets[i];
        targets.push_back({{"name", target.name},
                           {"needs", target.cpu_features},
                           {"lanes", target.lanes},
                           {"runnable", is_runnable(target)}});
    }
    ordered_json kernels = ordered_json::array();
    for (size_t i = 0; i < table.kernel_count; ++i) {
        kernels.push_back(kernel_json(table.kernels[i], nullptr));
    }
    ordered_json packs = ordered_json::array();
    for (const auto &pack : context.packs.all()) {
        packs.push_back({{"path", pack->path()}, {"kernels", pack->kernels().size() + pack->device_kernels().size()}});
        for (const KernelInfo &kernel : pack->kernels()) {
            if (find_kernel(kernel.name, context.packs) == &kernel) {
                kernels.push_back(kernel_json(kernel, pack.get()));
            }
        }
    }
    return {{"version", hattn_version()},
            {"cpu", {{"model", cpu_model()}, {"cores", available_cores()}}},
            {"threads", context.executor.threads},
            {"target", context.target->name},
            {"force", context.force.text},
            {"targets", targets},
            {"devices", devices_json(context.tuning->machine, context.packs)},
            {"tuning_database", tuning_json(*context.tuning)},
            {"scratch_overflows", scratch_overflow_count()},
            {"packs", packs},
            {"warnings", warnings_json(context)},
            {"kernels", kernels}};
}

constexpr const char *kDeciders[] = {"rule", "machine", "shipped"};

// That of the longest sequence; null if there is none for it.
ordered_json class_of(const Problem &problem, const TuningFamily &family, const TuningCell &cell,
                      const DeviceStamp *device = nullptr) {
    const bool has_class = has_tuning_class(problem, std::max<int64_t>(problem.query_length, 1), problem.kv_length);
    return has_class ? class_json(family, cell, device) : ordered_json();
}

// Why no entry of the machine decides about the longest sequence, as a phrase with a semicolon: it is beyond all
// classes, or the default stays. Empty otherwise.
std::string why_no_entry(const TuningGrids &machine, const Problem &problem) {
    const int64_t rows = std::max<int64_t>(problem.query_length, 1);
    if (!has_tuning_class(problem, rows, problem.kv_length)) {
        return "more keys than the last class of tunings has, " + std::to_string(int64_t{1} << (kKeyClasses - 1)) +
               "; ";
    }
    const TuningEntry *entry = nearest_entry(machine, problem, rows, problem.kv_length);
    return !entry || entry->algorithm != HATTN_ALGORITHM_AUTO
               ? ""
               : "the tuning database of this machine says for rows " + std::to_string(int64_t{1} << entry->cell.rows) +
                     ", keys " + std::to_string(int64_t{1} << entry->cell.keys) + " that the default stays; ";
}

// Likewise, that its entry is of no use here, since no kernel has the tile.
std::string why_no_tile(const KernelSet &kernels, const Problem &problem) {
    const TuningEntry *entry =
        nearest_entry(kernels.machine, problem, std::max<int64_t>(problem.query_length, 1), problem.kv_length);
    return !entry || entry->algorithm == HATTN_ALGORITHM_AUTO ||
                   kernel_of_entry(kernels, problem, *entry, problem.query_length, problem.kv_length)
               ? ""
               : "the tuning database of this machine names a tile of " + std::to_string(entry->tile.rows) +
                     " rows and " + std::to_string(entry->tile.keys) + " keys that no kernel for the problem has; ";
}

// Why the choice is what it is, in words.
std::string why(const TuningEntry *entry, Decider decider, const TuningFamily &family, const TuningCell &cell) {
    if (!entry) {
        return "built-in rule by rows per kv head and keys";
    }
    const TuningFamily &of_entry = entry->family;
    const bool exact = of_entry == family && entry->cell.rows == cell.rows && entry->cell.keys == cell.keys;
    std::ostringstream text;
    text.imbue(std::locale::classic());
    text << (decider == Decider::kMachine ? "tuning database of this machine" : "tunings shipped for the target")
         << ": " << (exact ? "its class" : "nearest class") << ", rows " << (int64_t{1} << entry->cell.rows)
         << ", keys " << (int64_t{1} << entry->cell.keys) << ", head " << (int64_t{1} << of_entry.head_exponent)
         << ", group " << (int64_t{1} << of_entry.group_exponent)
         << (of_entry.hooks == family.hooks ? "" : ", hooks " + hook_names(of_entry.hooks))
         << (of_entry.dtype == family.dtype ? "" : ", of " + dtype_name(of_entry.dtype)) << ", measured " << entry->gain
         << "x the default";
    return text.str();
}

ordered_json explain_device_json(const hattn_plan &plan) {
    const DevicePlan &device = *plan.device;
    return {{"algorithm", algorithm_name(device.algorithm)},
            {"kernel", device.attention->name},
            {"pack", origin_json(plan.packs.pack_of(device.attention))},
            {"values_kernel", device.values ? ordered_json(device.values->name) : ordered_json()},
            {"score_kernel", device.scores ? ordered_json(device.scores->name) : ordered_json()},
            {"target", device.target->name},
            {"hooks", hook_name_list(plan.problem.hooks)},
            {"tile", tile_json(device.attention->tile)},
            {"matrix_type", matrix_type_json(*device.attention)},
            {"heads_per_tile", device.heads},
            {"split_keys", device.split_keys},
            {"workspace_bytes", plan.layout.bytes},
            {"device_workspace_bytes", device.workspace.device_bytes},
            {"class", class_of(plan.problem, device.family, device.cell, &device.stamp)},
            {"decided_by", kDeciders[static_cast<size_t>(device.decider)]},
            {"invariant", !device.entry || device.entry->invariant},
            {"why", device.why_algorithm + why_no_entry(plan.tuning->machine.find(device.family), plan.problem) +
                        why(device.entry, device.decider, device.family, device.cell)}};
}

// Of `batch` sequences of so many rows and keys.
ordered_json explain_json(const hattn_plan &plan, int64_t batch, int64_t query_length, int64_t kv_length) {
    if (plan.device) {
        return explain_device_json(plan);
    }
    const int64_t rows = std::max<int64_t>(query_length, 1);
    const Choice choice = choose(plan.kernels, plan.problem, rows, kv_length);
    Problem problem = plan.problem;
    problem.batch = batch;
    problem.query_length = query_length;
    problem.kv_length = kv_length;
    const TuningCell cell = tuning_cell(problem, rows, kv_length);
    const int64_t split = choice.split_keys;
    const int64_t units = problem.kv_heads * ((problem.group_size() + choice.heads - 1) / choice.heads) *
                          most_row_blocks(problem, choice.kernel->tile.rows / choice.heads);
    const int64_t splits_per_unit = split > 0 ? std::max<int64_t>(1, (problem.kv_length + split - 1) / split) : 1;
    const TuningFamily family = family_of(problem, plan.kernels.algorithm, plan.kernels.target);
    return {{"algorithm", algorithm_name(choice.algorithm)},
            {"kernel", choice.kernel->name},
            {"pack", origin_json(plan.packs.pack_of(choice.kernel))},
            {"values_kernel", choice.values_kernel ? ordered_json(choice.values_kernel->name) : ordered_json()},
            {"last_kernel", choice.last_kernel ? ordered_json(choice.last_kernel->name) : ordered_json()},
            {"values_pack", origin_json(plan.packs.pack_of(choice.values_kernel))},
            {"target", choice.kernel->target},
            {"hooks", hook_name_list(problem.hooks)},
            {"tile", tile_json(choice.kernel->tile)},
            {"heads_per_tile", choice.heads},
            {"split_keys", split},
            {"tasks", units * splits_per_unit},
            {"threads", plan.executor.threads},
            {"workspace_bytes", plan.layout.bytes},
            {"class", class_of(problem, family, cell)},
            {"decided_by", kDeciders[static_cast<size_t>(choice.decider)]},
            {"invariant", choice.decider != Decider::kMachine || choice.entry->invariant},
            {"why", plan.kernels.why_algorithm + why_no_entry(plan.kernels.machine, problem) +
                        why_no_tile(plan.kernels, problem) + why(choice.entry, choice.decider, family, cell)}};
}

// Paths may be no UTF-8, which JSON is.
void give_json(const ordered_json &json, char *buffer, size_t capacity, size_t *size) {
    const std::string text = json.dump(2, ' ', false, ordered_json::error_handler_t::replace);
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
        give_json(info_json(*context), buffer, capacity, size);
    });
}

hattn_status hattn_plan_explain(const hattn_plan *plan, char *buffer, size_t capacity, size_t *size) {
    using namespace hattn;
    return guarded([&] {
        require(plan, HATTN_INVALID_ARGUMENT, "plan: is null");
        require(size, HATTN_INVALID_ARGUMENT, "size: is null");
        const Problem &whole = plan->problem;
        give_json(explain_json(*plan, whole.batch, whole.query_length, whole.kv_length), buffer, capacity, size);
    });
}

hattn_status hattn_plan_explain_sequence(const hattn_plan *plan, int64_t query_length, int64_t kv_length, char *buffer,
                                         size_t capacity, size_t *size) {
    using namespace hattn;
    return guarded([&] {
        require(plan, HATTN_INVALID_ARGUMENT, "plan: is null");
        require(size, HATTN_INVALID_ARGUMENT, "size: is null");
        const auto check = [](const char *name, int64_t length, int64_t most) {
            require(length >= 0 && length <= most, HATTN_INVALID_ARGUMENT, name, ": is ", length,
                    ", but must be from 0 to the ", most == kMaxExtent ? "largest, " : "plan's, ", most);
        };
        check("query_length", query_length, plan->problem.query_length);
        check("kv_length", kv_length, plan->problem.ring ? kMaxExtent : plan->problem.kv_length);
        give_json(explain_json(*plan, 1, query_length, kv_length), buffer, capacity, size);
    });
}
