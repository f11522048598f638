#include "device_choice.h"

#include <algorithm>
#include <tuple>

#include "runtime/kernel_registry.h"
#include "runtime/status.h"

namespace hattn {

namespace {

// Up to so many rows per kv head the key range is split over work groups.
constexpr int64_t kDecodeRows = 16;

constexpr int64_t kSplitKeys = 512;

// Heads padded to more than this many times what they would be by default have no chance.
constexpr int kMostPadding = 2;

KernelKind kind_of(hattn_algorithm algorithm) {
    switch (algorithm) {
    case HATTN_ALGORITHM_NAIVE:
        return KernelKind::kNaive;
    case HATTN_ALGORITHM_SPLIT_KV:
        return KernelKind::kSplitKv;
    case HATTN_ALGORITHM_UNFUSED:
        return KernelKind::kUnfusedScores;
    default:
        return KernelKind::kFlash;
    }
}

// Kernels that hold the scores of all their keys have splits of as many as they hold.
int64_t usual_split_keys(hattn_algorithm algorithm, const DeviceKernelInfo &kernel) {
    switch (algorithm) {
    case HATTN_ALGORITHM_FLASH:
        return 0;
    case HATTN_ALGORITHM_SPLIT_KV:
        return kSplitKeys;
    default:
        return kernel.tile.keys;
    }
}

int64_t head_of(const Problem &problem) {
    return std::max(problem.key_dim, problem.value_dim);
}

bool multiplies(const DeviceKernelInfo &kernel, hattn_dtype matrix_type) {
    return kernel.matrix_type == HATTN_FLOAT32 || kernel.matrix_type == matrix_type;
}

// Null if there is none, or it would compute much more than the usual one.
const DeviceKernelInfo *kernel_with(const DeviceTile &tile, const DeviceKernelInfo &usual, const Problem &problem) {
    const DeviceKernelInfo *found = nullptr;
    for (const DeviceKernelInfo &kernel : device_table().kernels) {
        if (kernel.kind == usual.kind && std::string_view(kernel.target) == usual.target && kernel.tile == tile &&
            serves(kernel.hooks, problem.hooks) && multiplies(kernel, matrix_type_of(problem)) &&
            (!found || __builtin_popcount(kernel.hooks) < __builtin_popcount(found->hooks))) {
            found = &kernel;
        }
    }
    const bool fits = head_of(problem) <= tile.head && tile.head <= kMostPadding * usual.tile.head;
    return fits ? found : nullptr;
}

}  // namespace

hattn_dtype matrix_type_of(const Problem &problem) {
    const bool alike = problem.q_dtype == problem.k_dtype && problem.k_dtype == problem.v_dtype;
    return alike ? problem.q_dtype : HATTN_FLOAT32;
}

const DeviceKernelInfo &device_kernel(const DeviceTargetInfo &target, KernelKind kind, uint32_t hooks, int64_t head,
                                      hattn_dtype matrix_type) {
    const DeviceKernelInfo *best = nullptr;
    int64_t largest = 0;
    const auto rank = [](const DeviceKernelInfo &kernel) {
        return std::tuple(kernel.matrix_type == HATTN_FLOAT32, kernel.tile.head, __builtin_popcount(kernel.hooks));
    };
    const auto room = [&](const DeviceKernelInfo &kernel) { return kernel.tile.head > 0 ? kernel.tile.head : head; };
    for (const DeviceKernelInfo &kernel : device_table().kernels) {
        if (kernel.kind == kind && std::string_view(kernel.target) == target.name && serves(kernel.hooks, hooks) &&
            multiplies(kernel, matrix_type)) {
            largest = std::max<int64_t>(largest, room(kernel));
            if (room(kernel) >= head && (!best || rank(kernel) < rank(*best))) {
                best = &kernel;
            }
        }
    }
    require(best, HATTN_NOT_SUPPORTED, "key_dim and value_dim: the larger is ", head, ", but kernels for ", target.name,
            " hold heads of at most ", largest);
    return *best;
}

DeviceChoice choose_for_device(const Problem &problem, const DeviceTargetInfo &target, hattn_algorithm asked,
                               const TuningGrids &measured) {
    const auto usual = [&](hattn_algorithm algorithm) {
        const DeviceKernelInfo &kernel =
            device_kernel(target, kind_of(algorithm), problem.hooks, head_of(problem), matrix_type_of(problem));
        return DeviceChoice{algorithm, &kernel, usual_split_keys(algorithm, kernel)};
    };
    const int64_t rows = std::max<int64_t>(problem.query_length, 1);
    const TuningEntry *entry = nearest_entry(measured, problem, rows, problem.kv_length);
    if (entry && (entry->algorithm == HATTN_ALGORITHM_FLASH || entry->algorithm == HATTN_ALGORITHM_SPLIT_KV)) {
        DeviceChoice choice = usual(entry->algorithm);
        const DeviceKernelInfo *kernel = kernel_with(entry->device_tile, *choice.kernel, problem);
        choice.kernel = kernel ? kernel : choice.kernel;
        choice.split_keys = entry->split_keys;
        choice.decider = Decider::kMachine;
        choice.entry = entry;
        return choice;
    }
    const bool few_rows = problem.query_length * problem.group_size() <= kDecodeRows;
    return usual(asked != HATTN_ALGORITHM_AUTO ? asked : few_rows ? HATTN_ALGORITHM_SPLIT_KV : HATTN_ALGORITHM_FLASH);
}

}  // namespace hattn
