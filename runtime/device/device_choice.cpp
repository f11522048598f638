#include "device_choice.h"

#include <algorithm>
#include <tuple>

#include "runtime/checked.h"
#include "runtime/kernel_registry.h"
#include "runtime/status.h"

namespace hattn {

namespace {

// Up to so many rows per kv head the key range is split over work groups, in products of float32 numbers.
constexpr int64_t kDecodeRows = 16;

// Of a split. Shorter ones where there are not so many of them for each compute unit: loads of several work groups hide
// how long each takes. On an H100 32768 keys of 8 heads make 512 work groups for 132 units.
constexpr int64_t kSplitKeys = 512, kFewestSplitKeys = 128, kGroupsOfUnit = 4;

// Tiles for tensor cores with two tiles of the instruction one below the other, of which a chunk takes so much of the
// machine code per row that others do (decision 0042).
constexpr int kManyThreadRows = 4;
constexpr double kWorkOfManyRows = 0.75;

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

// By one sequence of the length there is room for.
int64_t keys_of_split(const Problem &problem, const DeviceKernelInfo &kernel, const DeviceLimits &device) {
    const int64_t rows = std::max<int64_t>(problem.query_length, 1);
    const int64_t heads = std::min<int64_t>(kernel.tile.rows, problem.group_size());
    const int64_t tiles =
        problem.kv_heads * ceil_div(problem.group_size(), heads) * ceil_div(rows, kernel.tile.rows / heads);
    int64_t keys = kFewestSplitKeys;
    while (keys < kSplitKeys && tiles * ceil_div(problem.kv_length, keys) > kGroupsOfUnit * device.compute_units) {
        keys *= 2;
    }
    return keys;
}

// Kernels that hold the scores of all their keys have splits of as many as they hold.
int64_t usual_split_keys(hattn_algorithm algorithm, const Problem &problem, const DeviceKernelInfo &kernel,
                         const DeviceLimits &device) {
    switch (algorithm) {
    case HATTN_ALGORITHM_FLASH:
        return 0;
    case HATTN_ALGORITHM_SPLIT_KV:
        return keys_of_split(problem, kernel, device);
    default:
        return kernel.tile.keys;
    }
}

// Instructions for so many rows of a sequence and head, in the unit of a padded row of tiles with few rows of a thread.
double work(const DeviceKernelInfo &kernel, int64_t rows) {
    const int64_t tiles = (rows + kernel.tile.rows - 1) / kernel.tile.rows;
    const double of_row = kernel.tile.thread_rows >= kManyThreadRows ? kWorkOfManyRows : 1.0;
    return static_cast<double>(tiles * kernel.tile.rows) * of_row;
}

// Of all the kernels for a problem, those that a device has room for.
struct Candidates {
    const DeviceKernelInfo *best = nullptr;
    const DeviceKernelInfo *smallest = nullptr;  // the one with the least shared memory, of all
    int64_t largest_head = 0;                    // of all with such hooks
};

Candidates candidates(const DeviceLimits &device, KernelKind kind, uint32_t hooks, int64_t head,
                      hattn_dtype matrix_type, int64_t rows) {
    const auto rank = [&](const DeviceKernelInfo &kernel) {
        return std::tuple(kernel.matrix_type == HATTN_FLOAT32, kernel.tile.head, __builtin_popcount(kernel.hooks),
                          work(kernel, rows));
    };
    Candidates found;
    for (const DeviceKernelInfo &kernel : device_table().kernels) {
        if (kernel.kind != kind || std::string_view(kernel.target) != device.target.name ||
            !serves(kernel.hooks, hooks) || !multiplies(kernel, matrix_type)) {
            continue;
        }
        const int64_t room = kernel.tile.head > 0 ? kernel.tile.head : head;
        found.largest_head = std::max(found.largest_head, room);
        if (room < head) {
            continue;
        }
        if (!found.smallest || kernel.shared_bytes < found.smallest->shared_bytes) {
            found.smallest = &kernel;
        }
        if (kernel.shared_bytes <= device.shared_bytes && (!found.best || rank(kernel) < rank(*found.best))) {
            found.best = &kernel;
        }
    }
    return found;
}

// Null if there is none, or it would compute much more than the usual one. Tiles of kernels that multiply other types
// are other tiles, even where their numbers are the same.
const DeviceKernelInfo *kernel_with(const DeviceTile &tile, const DeviceKernelInfo &usual, const Problem &problem,
                                    const DeviceLimits &device, const KernelPacks &packs) {
    const DeviceKernelInfo *found = nullptr;
    for_each_device_kernel(packs, [&](const DeviceKernelInfo &kernel) {
        if (kernel.kind == usual.kind && std::string_view(kernel.target) == usual.target && kernel.tile == tile &&
            serves(kernel.hooks, problem.hooks) && kernel.matrix_type == usual.matrix_type &&
            kernel.shared_bytes <= device.shared_bytes &&
            (!found || __builtin_popcount(kernel.hooks) < __builtin_popcount(found->hooks))) {
            found = &kernel;
        }
    });
    const bool fits = head_of(problem) <= tile.head && tile.head <= kMostPadding * usual.tile.head;
    return fits ? found : nullptr;
}

// Null if the device has room for none.
const DeviceKernelInfo *usual_kernel(const DeviceLimits &device, hattn_algorithm algorithm, const Problem &problem) {
    return candidates(device, kind_of(algorithm), problem.hooks, head_of(problem), matrix_type_of(problem),
                      problem.query_length)
        .best;
}

// Whether the key range is split. On tensor cores up to the rows of a tile of split_kv, which all heads of a kv head
// share: flash, whose tiles are of one head, would read keys for each of them.
bool has_few_rows(const Problem &problem, const DeviceLimits &device) {
    if (problem.query_length * problem.group_size() <= kDecodeRows) {
        return true;
    }
    const DeviceKernelInfo *kernel = usual_kernel(device, HATTN_ALGORITHM_SPLIT_KV, problem);
    return kernel && kernel->matrix_type != HATTN_FLOAT32 && problem.query_length <= kernel->tile.rows;
}

// The algorithm for its shape, else the next one that the device has room for; the first one if there is none.
hattn_algorithm algorithm_by_rule(const Problem &problem, const DeviceLimits &device) {
    const bool few_rows = has_few_rows(problem, device);
    const hattn_algorithm first = few_rows ? HATTN_ALGORITHM_SPLIT_KV : HATTN_ALGORITHM_FLASH,
                          second = few_rows ? HATTN_ALGORITHM_FLASH : HATTN_ALGORITHM_SPLIT_KV;
    const Candidates found = candidates(device, kind_of(first), problem.hooks, head_of(problem),
                                        matrix_type_of(problem), problem.query_length);
    if (found.best || !found.smallest) {
        return first;  // or nothing holds such heads, on any device
    }
    for (const hattn_algorithm algorithm : {second, HATTN_ALGORITHM_NAIVE, HATTN_ALGORITHM_UNFUSED}) {
        if (usual_kernel(device, algorithm, problem)) {
            return algorithm;
        }
    }
    return first;
}

}  // namespace

int64_t head_of(const Problem &problem) {
    return std::max(problem.key_dim, problem.value_dim);
}

hattn_dtype matrix_type_of(const Problem &problem) {
    const bool alike = problem.q_dtype == problem.k_dtype && problem.k_dtype == problem.v_dtype;
    return alike ? problem.q_dtype : HATTN_FLOAT32;
}

bool multiplies(const DeviceKernelInfo &kernel, hattn_dtype matrix_type) {
    return kernel.matrix_type == HATTN_FLOAT32 || kernel.matrix_type == matrix_type;
}

DeviceChoice usual_choice(hattn_algorithm algorithm, const Problem &problem, const DeviceKernelInfo &kernel,
                          const DeviceLimits &device) {
    return {algorithm, &kernel, usual_split_keys(algorithm, problem, kernel, device)};
}

const DeviceKernelInfo &device_kernel(const DeviceLimits &device, KernelKind kind, uint32_t hooks, int64_t head,
                                      hattn_dtype matrix_type, int64_t rows) {
    const Candidates found = candidates(device, kind, hooks, head, matrix_type, rows);
    require(found.smallest, HATTN_NOT_SUPPORTED, "key_dim and value_dim: the larger is ", head, ", but kernels for ",
            device.target.name, " hold heads of at most ", found.largest_head);
    require(found.best, HATTN_NOT_SUPPORTED, "device: has ", device.shared_bytes,
            " bytes of shared memory for a work group, but ", found.smallest->name, ", which takes the least, takes ",
            found.smallest->shared_bytes);
    return *found.best;
}

DeviceChoice choose_for_device(const Problem &problem, const DeviceLimits &device, hattn_algorithm asked,
                               const TuningGrids &measured, const KernelPacks &packs) {
    const int64_t rows = std::max<int64_t>(problem.query_length, 1);
    const TuningEntry *entry = nearest_entry(measured, problem, rows, problem.kv_length);
    if (entry && (entry->algorithm == HATTN_ALGORITHM_FLASH || entry->algorithm == HATTN_ALGORITHM_SPLIT_KV)) {
        if (const DeviceKernelInfo *usual = usual_kernel(device, entry->algorithm, problem)) {
            const DeviceKernelInfo *tuned = kernel_with(entry->device_tile, *usual, problem, device, packs);
            return {entry->algorithm, tuned ? tuned : usual, entry->split_keys, Decider::kMachine, entry};
        }
    }
    const hattn_algorithm algorithm = asked != HATTN_ALGORITHM_AUTO ? asked : algorithm_by_rule(problem, device);
    const DeviceKernelInfo &kernel = device_kernel(device, kind_of(algorithm), problem.hooks, head_of(problem),
                                                   matrix_type_of(problem), problem.query_length);
    return usual_choice(algorithm, problem, kernel, device);
}

}  // namespace hattn
