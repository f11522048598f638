#include "force.h"

#include <optional>
#include <sstream>

#include "cpu_features.h"
#include "kernel_registry.h"
#include "status.h"

namespace hattn {

namespace {

struct AlgorithmRow {
    hattn_algorithm algorithm;
    const char *name;
};

constexpr AlgorithmRow kAlgorithms[] = {
    {HATTN_ALGORITHM_AUTO, "auto"},         {HATTN_ALGORITHM_NAIVE, "naive"},     {HATTN_ALGORITHM_FLASH, "flash"},
    {HATTN_ALGORITHM_SPLIT_KV, "split_kv"}, {HATTN_ALGORITHM_UNFUSED, "unfused"},
};

hattn_algorithm parse_algorithm(const std::string &value) {
    for (const AlgorithmRow &row : kAlgorithms) {
        if (value == row.name) {
            return row.algorithm;
        }
    }
    fail(HATTN_INVALID_ARGUMENT, "HATTN_FORCE: algorithm is '", value,
         "', but must be auto, naive, flash, split_kv or unfused");
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

// A kernel fixes the target too, and the algorithm if it computes attention by itself.
void parse_kernel(const std::string &value, const KernelPacks &packs, Force &force) {
    force.kernel = find_kernel(value, packs);
    require(force.kernel, HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel is '", value,
            "', but there is no such kernel, neither in the library nor in a loaded pack (see hattn info)");
    const TargetInfo *target = parse_target(force.kernel->target);
    require(!force.target || force.target == target, HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel ", value,
            " is for target ", target->name, ", but target is ", force.target ? force.target->name : "");
    require(is_runnable(*force.kernel), HATTN_NOT_SUPPORTED, "HATTN_FORCE: kernel ", value, " needs ",
            force.kernel->cpu_features, ", which this CPU (", cpu_model(), ") lacks");
    require(request_cpu_features(force.kernel->cpu_features), HATTN_NOT_SUPPORTED, "HATTN_FORCE: kernel ", value,
            " needs ", force.kernel->cpu_features, ", for which the operating system keeps no registers");
    force.target = target;
    hattn_algorithm algorithm = force.algorithm;
    switch (force.kernel->kind) {
    case KernelKind::kNaive:
        algorithm = HATTN_ALGORITHM_NAIVE;
        break;
    case KernelKind::kFlash:
        algorithm = HATTN_ALGORITHM_FLASH;
        break;
    case KernelKind::kSplitKv:
        algorithm = HATTN_ALGORITHM_SPLIT_KV;
        break;
    case KernelKind::kUnfusedScores:
    case KernelKind::kUnfusedValues:
        algorithm = HATTN_ALGORITHM_UNFUSED;
        break;
    default:
        break;
    }
    require(force.algorithm == HATTN_ALGORITHM_AUTO || force.algorithm == algorithm, HATTN_INVALID_ARGUMENT,
            "HATTN_FORCE: kernel ", value, " is for algorithm ", algorithm_name(algorithm), ", but algorithm is ",
            algorithm_name(force.algorithm));
    force.algorithm = algorithm;
}

}  // namespace

const char *algorithm_name(hattn_algorithm algorithm) {
    for (const AlgorithmRow &row : kAlgorithms) {
        if (row.algorithm == algorithm) {
            return row.name;
        }
    }
    return "unknown";
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
    while (std::getline(words, word, ',')) {
        const size_t equals = word.find('=');
        const std::string key = word.substr(0, equals);
        const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
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
