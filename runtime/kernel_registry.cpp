#include "kernel_registry.h"

#include <algorithm>
#include <bit>
#include <functional>
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

// "avx2" of "x86-avx2", "neon" of "arm-neon".
std::string_view without_family(std::string_view target) {
    return target.substr(target.find('-') + 1);
}

// The bits of the hooks with a property.
uint32_t hooks_that(bool ScoreHookInfo::*property) {
    uint32_t bits = 0;
    for (size_t i = 0; i < kernel_table().hook_count; ++i) {
        bits |= kernel_table().hooks[i].*property ? kernel_table().hooks[i].bit : 0;
    }
    return bits;
}

uint32_t neutral_hooks() {
    return hooks_that(&ScoreHookInfo::has_neutral);
}

constexpr const char *kUnknown = "unknown";  // of kinds; its address tells

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
    case KernelKind::kWiden:
        return "widen";
    case KernelKind::kNarrow:
        return "narrow";
    case KernelKind::kBlockScales:
        return "block_scales";
    case KernelKind::kQuantize:
        return "quantize";
    case KernelKind::kAppend:
        return "append";
    }
    return kUnknown;
}

bool parse_kernel_kind(std::string_view name, KernelKind *kind) {
    for (int i = 0; kernel_kind_name(static_cast<KernelKind>(i)) != kUnknown; ++i) {
        if (name == kernel_kind_name(static_cast<KernelKind>(i))) {
            *kind = static_cast<KernelKind>(i);
            return true;
        }
    }
    return false;
}

bool parse_storage(std::string_view name, KeyStorage *storage) {
    for (size_t i = 0; i < std::size(kStorageNames); ++i) {
        if (name == kStorageNames[i]) {
            *storage = static_cast<KeyStorage>(i);
            return true;
        }
    }
    return false;
}

const TargetInfo *find_target(std::string_view name) {
    for (const TargetInfo &target : all_targets()) {
        if (name == target.name || name == without_family(target.name)) {
            return &target;
        }
    }
    return nullptr;
}

bool is_runnable(const TargetInfo &target) {
    return cpu_has_features(target.cpu_features);
}

bool is_runnable(const KernelInfo &kernel) {
    return is_runnable(*find_target(kernel.target)) && cpu_has_features(kernel.cpu_features);
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

bool serves(uint32_t kernel_hooks, uint32_t wanted) {
    const uint32_t others = kernel_hooks & ~wanted;
    return (wanted & ~kernel_hooks) == 0 && (others & ~neutral_hooks()) == 0;
}

std::vector<const KernelInfo *> find_kernels(const TargetInfo &target, KernelKind kind, KeyStorage storage,
                                             uint32_t hooks) {
    std::vector<const KernelInfo *> found;
    for (const KernelInfo &kernel : all_kernels()) {
        if (kernel.kind != kind || kernel.storage != storage || std::string_view(kernel.target) != target.name ||
            kernel.from_memory || !serves(kernel.hooks, hooks) || !cpu_has_features(kernel.cpu_features)) {
            continue;
        }
        const int others = found.empty() ? 0 : std::popcount(found.front()->hooks) - std::popcount(kernel.hooks);
        if (others > 0) {
            found.clear();
        }
        if (others >= 0) {
            found.push_back(&kernel);
        }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const KernelInfo *a, const KernelInfo *b) { return a->tile.rows < b->tile.rows; });
    return found;
}

std::vector<const KernelInfo *> kernels_of_cpu(const TargetInfo &target, KernelKind kind, KeyStorage storage,
                                               uint32_t hooks) {
    std::vector<const KernelInfo *> found = find_kernels(target, kind, storage, hooks);
    const auto is_for_others = [](const KernelInfo *kernel) {
        const std::string_view cpus = kernel->made_for;
        return cpus.empty() || cpus.ends_with("|others");
    };
    const auto is_for_this = [](const KernelInfo *kernel) {
        return *kernel->made_for != '\0' && cpu_has_features(kernel->made_for);
    };
    if (std::ranges::any_of(found, is_for_this)) {
        std::erase_if(found, std::not_fn(is_for_this));
    } else {
        std::erase_if(found, std::not_fn(is_for_others));
    }
    return found;
}

const KernelInfo &only_kernel(const TargetInfo &target, KernelKind kind) {
    const std::vector<const KernelInfo *> found = find_kernels(target, kind, KeyStorage::kFloat32, 0);
    require(!found.empty(), HATTN_INTERNAL_ERROR, "no ", kernel_kind_name(kind), " kernel for ", target.name);
    return *found.front();
}

std::vector<const CandidateInfo *> find_candidates(const TargetInfo &target, KernelKind kind) {
    std::vector<const CandidateInfo *> found;
    for (const CandidateInfo &candidate : std::span(kernel_table().candidates, kernel_table().candidate_count)) {
        if (candidate.kind == kind && std::string_view(candidate.target) == target.name) {
            found.push_back(&candidate);
        }
    }
    return found;
}

std::string kernel_name(const CandidateInfo &candidate, uint32_t hooks) {
    std::string name = candidate.name;
    for (const ScoreHookInfo &hook : std::span(kernel_table().hooks, kernel_table().hook_count)) {
        if (hooks & hook.bit) {
            name.append("_").append(hook.name);
        }
    }
    return name;
}

uint32_t hook_bit(std::string_view name) {
    for (size_t i = 0; i < kernel_table().hook_count; ++i) {
        if (name == kernel_table().hooks[i].name) {
            return kernel_table().hooks[i].bit;
        }
    }
    return 0;
}

bool leaves_not_finite(const KernelInfo &kernel) {
    return goes_in_bands(kernel.storage, kernel.tile.rows) &&
           (multiplies_terms(kernel.storage) || (kernel.hooks & hiding_hooks()) != 0);
}

uint32_t hiding_hooks() {
    return hooks_that(&ScoreHookInfo::can_hide_keys);
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
