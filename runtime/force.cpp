#include "force.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>

#include "cpu_features.h"
#include "device/device_table.h"
#include "kernel_registry.h"
#include "status.h"
#include "tensor.h"

namespace hattn {

namespace {

struct AlgorithmRow {
    hattn_algorithm algorithm;
    const char *name;
};

constexpr AlgorithmRow kAlgorithmRows[] = {
    {HATTN_ALGORITHM_AUTO, "auto"},         {HATTN_ALGORITHM_NAIVE, "naive"},     {HATTN_ALGORITHM_FLASH, "flash"},
    {HATTN_ALGORITHM_SPLIT_KV, "split_kv"}, {HATTN_ALGORITHM_UNFUSED, "unfused"},
};

hattn_algorithm parse_algorithm(const std::string &value) {
    const std::optional<hattn_algorithm> algorithm = algorithm_named(value);
    require(algorithm.has_value(), HATTN_INVALID_ARGUMENT, "HATTN_FORCE: algorithm is '", value,
            "', but must be auto, naive, flash, split_kv or unfused");
    return *algorithm;
}

const TargetInfo *parse_target(const std::string &value) {
    const TargetInfo *target = find_target(value);
    if (!target) {
        std::string known;
        for (size_t i = 0; i < kernel_table().target_count; ++i) {
            known += (i ? ", " : "") + std::string(kernel_table().targets[i].name);
        }
        fail(HATTN_INVALID_ARGUMENT, "HATTN_FORCE: target is '", value, "', but this build has: ", known);
    }
    require(is_runnable(*target), HATTN_NOT_SUPPORTED, "HATTN_FORCE: target ", target->name, " needs ",
            target->cpu_features, ", which this CPU (", cpu_model(), ") lacks");
    return target;
}

// The algorithm that a kernel is for; auto where it computes no attention by itself.
hattn_algorithm algorithm_of(KernelKind kind) {
    switch (kind) {
    case KernelKind::kNaive:
        return HATTN_ALGORITHM_NAIVE;
    case KernelKind::kFlash:
        return HATTN_ALGORITHM_FLASH;
    case KernelKind::kSplitKv:
        return HATTN_ALGORITHM_SPLIT_KV;
    case KernelKind::kUnfusedScores:
    case KernelKind::kUnfusedValues:
        return HATTN_ALGORITHM_UNFUSED;
    default:
        return HATTN_ALGORITHM_AUTO;
    }
}

// A kernel fixes the algorithm, if it is for one.
void force_algorithm_of(const char *kernel, KernelKind kind, Force &force) {
    const hattn_algorithm algorithm = algorithm_of(kind);
    if (algorithm == HATTN_ALGORITHM_AUTO) {
        return;
    }
    require(force.algorithm == HATTN_ALGORITHM_AUTO || force.algorithm == algorithm, HATTN_INVALID_ARGUMENT,
            "HATTN_FORCE: kernel ", kernel, " is for algorithm ", algorithm_name(algorithm), ", but algorithm is ",
            algorithm_name(force.algorithm));
    force.algorithm = algorithm;
}

// It fixes the target too.
void force_kernel(const KernelInfo &kernel, Force &force) {
    const TargetInfo *target = parse_target(kernel.target);
    require(!force.target || force.target == target, HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel ", kernel.name,
            " is for target ", target->name, ", but target is ", force.target ? force.target->name : "");
    require(is_runnable(kernel), HATTN_NOT_SUPPORTED, "HATTN_FORCE: kernel ", kernel.name, " needs ",
            kernel.cpu_features, ", which this CPU (", cpu_model(), ") lacks");
    require(request_cpu_features(kernel.cpu_features), HATTN_NOT_SUPPORTED, "HATTN_FORCE: kernel ", kernel.name,
            " needs ", kernel.cpu_features, ", for which the operating system keeps no registers");
    force.kernel = &kernel;
    force.target = target;
    force_algorithm_of(kernel.name, kernel.kind, force);
}

void force_kernel(const DeviceKernelInfo &kernel, Force &force) {
    require(!force.target, HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel ", kernel.name, " is for ", kernel.target,
            ", but target is ", force.target ? force.target->name : "");
    require(algorithm_of(kernel.kind) != HATTN_ALGORITHM_AUTO, HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel ",
            kernel.name, " is of kind ", kernel_kind_name(kernel.kind), ", which computes no attention");
    force.device_kernel = &kernel;
    force_algorithm_of(kernel.name, kernel.kind, force);
}

void parse_kernel(const std::string &name, const KernelPacks &packs, Force &force) {
    if (const KernelInfo *kernel = find_kernel(name, packs)) {
        force_kernel(*kernel, force);
    } else if (const DeviceKernelInfo *of_device = find_device_kernel(name, packs)) {
        force_kernel(*of_device, force);
    } else {
        fail(HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel is '", name,
             "', but there is no such kernel, neither in the library nor in a loaded pack (see hattn info)");
    }
}

}  // namespace

const char *algorithm_name(hattn_algorithm algorithm) {
    const auto row = std::ranges::find(kAlgorithmRows, algorithm, &AlgorithmRow::algorithm);
    return row == std::end(kAlgorithmRows) ? "unknown" : row->name;
}

std::optional<hattn_algorithm> algorithm_named(std::string_view name) {
    const auto row = std::ranges::find(kAlgorithmRows, name, &AlgorithmRow::name);
    return row == std::end(kAlgorithmRows) ? std::nullopt : std::optional(row->algorithm);
}

void check_forced_device(const Force &force, hattn_device device) {
    const std::string name = force.kernel ? force.kernel->name : force.device_kernel ? force.device_kernel->name : "";
    const std::string of = force.device_kernel ? force.device_kernel->target : device_name(HATTN_CPU);
    require(name.empty() || of == device_name(device), HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel ", name, " is for ",
            of, ", but device is ", static_cast<int>(device), " (", device_name(device), ")");
}

Force parse_force(const char *text, const KernelPacks &packs) {
    Force force;
    if (!text || !*text) {
        return force;
    }
    force.text = text;
    std::istringstream words(force.text);
    std::string word;
    std::optional<std::string> kernel;
    std::set<std::string> given;
    while (std::getline(words, word, ',')) {
        const size_t equals = word.find('=');
        const std::string key = word.substr(0, equals);
        const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
        require(given.insert(key).second, HATTN_INVALID_ARGUMENT, "HATTN_FORCE: ", key, " is given twice in '",
                force.text, "'");
        if (key == "algorithm") {
            force.algorithm = parse_algorithm(value);
        } else if (key == "target") {
            force.target = parse_target(value);
        } else if (key == "kernel") {
            kernel = value;
        } else {
            fail(HATTN_INVALID_ARGUMENT, "HATTN_FORCE: unknown word '", word, "' in '", force.text,
                 "', expected algorithm=, target= or kernel=");
        }
    }
    if (kernel) {
        parse_kernel(*kernel, packs, force);
    }
    return force;
}

}  // namespace hattn
