#include "kernel_registry.h"

#include <algorithm>
#include <span>

#include "cpu_features.h"
#include "status.h"

namespace hattn {

namespace {

std::span<const TargetInfo> all_targets() {
    return {kernel_table().targets, kernel_table().target_count};
}

std::span<const KernelInfo> all_kernels() {
    return {kernel_table().kernels, kernel_table().kernel_count};
}

constexpr std::string_view kArchitecturePrefix = "x86-";

}  // namespace

const char *kernel_kind_name(KernelKind kind) {
    switch (kind) {
    case KernelKind::kNaive:
        return "naive";
    case KernelKind::kFlash:
        return "flash";
    case KernelKind::kSplitKv:
        return "split_kv";
    case KernelKind::kUnfusedScores:
        return "unfused_scores";
    case KernelKind::kUnfusedValues:
        return "unfused_values";
    case KernelKind::kScores:
        return "scores";
    case KernelKind::kProbabilities:
        return "probabilities";
    case KernelKind::kMerge:
        return "merge";
    }
    return "unknown";
}

const TargetInfo *find_target(std::string_view name) {
    for (const TargetInfo &target : all_targets()) {
        const std::string_view full = target.name;
        if (full == name ||
            (full.starts_with(kArchitecturePrefix) && full.substr(kArchitecturePrefix.size()) == name)) {
            return &target;
        }
    }
    return nullptr;
}

bool is_runnable(const TargetInfo &target) {
    return cpu_has_features(target.cpu_features);
}

const TargetInfo &best_runnable_target() {
    const std::span<const TargetInfo> targets = all_targets();
    for (size_t i = targets.size(); i-- > 0;) {
        if (is_runnable(targets[i])) {
            return targets[i];
        }
    }
    fail(HATTN_NOT_SUPPORTED, "no compiled target runs on this CPU (", cpu_model(), ")");
}

const KernelInfo *find_kernel(std::string_view name) {
    for (const KernelInfo &kernel : all_kernels()) {
        if (kernel.name == name) {
            return &kernel;
        }
    }
    return nullptr;
}

std::vector<const KernelInfo *> find_kernels(const TargetInfo &target, KernelKind kind, uint32_t hooks) {
    std::vector<const KernelInfo *> found;
    for (const KernelInfo &kernel : all_kernels()) {
        if (kernel.kind == kind && kernel.hooks == hooks && std::string_view(kernel.target) == target.name) {
            found.push_back(&kernel);
        }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const KernelInfo *a, const KernelInfo *b) { return a->tile.rows < b->tile.rows; });
    return found;
}

uint32_t hook_bit(std::string_view name) {
    for (size_t i = 0; i < kernel_table().hook_count; ++i) {
        if (name == kernel_table().hooks[i].name) {
            return kernel_table().hooks[i].bit;
        }
    }
    return 0;
}

uint32_t hiding_hooks() {
    uint32_t bits = 0;
    for (size_t i = 0; i < kernel_table().hook_count; ++i) {
        bits |= kernel_table().hooks[i].can_hide_keys ? kernel_table().hooks[i].bit : 0;
    }
    return bits;
}

std::vector<std::string> hook_name_list(uint32_t hooks) {
    std::vector<std::string> names;
    for (size_t i = 0; i < kernel_table().hook_count; ++i) {
        if (hooks & kernel_table().hooks[i].bit) {
            names.push_back(kernel_table().hooks[i].name);
        }
    }
    return names;
}

std::string hook_names(uint32_t hooks) {
    std::string names;
    for (const std::string &name : hook_name_list(hooks)) {
        names += (names.empty() ? "" : "+") + name;
    }
    return names.empty() ? "none" : names;
}

}  // namespace hattn
