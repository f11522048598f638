#include "device_choice.h"

#include <algorithm>
#include <tuple>

#include "runtime/checked.h"
#include "runtime/kernel_registry.h"
#include "runtime/status.h"
#include "runtime/tensor.h"

namespace hattn {

namespace {

// Up to so many rows per kv head, tiles are those of split_kv, whose work groups read keys as fast as they can.
constexpr int64_t kDecodeRows = 16;

// Keys of a split, and how many splits of all tiles each compute unit should have: as many as it holds at once.
struct SplitRule {
    int64_t fewest_keys, most_keys, groups_of_unit;
};
// Loads of several work groups hide how long each takes.
constexpr SplitRule kDecodeSplits = {128, 512, 4};
// Those of tensor cores, which have copies under way, need fewer, and each split takes time of the host, and of the
// merge (decision 0083). On an H200 32768 keys of 8 heads make 256 for 132 units.
constexpr SplitRule kMatrixDecodeSplits = {256, 2048, 2};
// Tiles of flash, of which a unit holds two.
constexpr SplitRule kFlashSplits = {256, kMaxKeysPerCall, 2};

// Where tiles of flash are split: below so many keys, and with tiles for more than a part of the compute units, splits
// and a merge take longer than tiles that leave the others idle.
constexpr int64_t kFewestKeysToSplit = 1024, kUnitsOfTile = 4;

// The same of kernels that take keys straight from memory, of which so many are to be on a unit from start to end
// (decision 0045): on an H100 32768 keys of 8 heads make 256 for 132 units.
constexpr int64_t kResidentGroups = 2;

// Tiles for tensor cores with two tiles of the instruction one below the other, of which a chunk takes so much of the
// machine code per row that others do (decision 0042).
constexpr int kManyThreadRows = 4;
constexpr double kWorkOfManyRows = 0.75;
// Of warpgroups, by the time that they take (decision 0090).
constexpr double kWorkOfWarpgroups = 0.55;

// Heads padded to more than this many times what they would be by default have no chance.
constexpr int kMostPadding = 2;

// Of any algorithm but split_kv, whose tiles may be those of flash as well: these kernels differ in their tiles alone.
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

bool computes(KernelKind kind, hattn_algorithm algorithm) {
    return kind == kind_of(algorithm) || (algorithm == HATTN_ALGORITHM_SPLIT_KV && kind == KernelKind::kFlash);
}

int64_t rows_of(const Problem &problem) {
    return std::max<int64_t>(problem.query_length, 1);
}

// For so many heads of one kv head, of so many rows each. Up to so many of the heads share a tile.
int64_t tiles_of_kv_head(const DeviceKernelInfo &kernel, int64_t heads, int64_t rows, int64_t most_heads) {
    const int64_t shared = std::min<int64_t>(kernel.tile.rows, most_heads);
    return ceil_div(heads, shared) * ceil_div(rows, kernel.tile.rows / shared);
}

// Of one sequence.
int64_t count_tiles(const Problem &problem, const DeviceKernelInfo &kernel, int64_t most_heads) {
    return problem.kv_heads * tiles_of_kv_head(kernel, problem.group_size(), rows_of(problem), most_heads);
}

// By one sequence of the length there is room for.
int64_t keys_of_split(const Problem &problem, const DeviceKernelInfo &kernel, const DeviceLimits &device) {
    const int64_t tiles = count_tiles(problem, kernel, problem.group_size());
    if (kernel.any_float) {
        // As even as may be.
        const int64_t splits = std::max<int64_t>(kResidentGroups * device.compute_units / tiles, 1);
        const int64_t each = std::max(ceil_div(problem.kv_length, splits), kDecodeSplits.fewest_keys);
        return ceil_div(each, int64_t{kernel.tile.keys}) * kernel.tile.keys;
    }
    const SplitRule &rule = kernel.kind != KernelKind::kSplitKv   ? kFlashSplits
                            : kernel.matrix_type != HATTN_FLOAT32 ? kMatrixDecodeSplits
                                                                  : kDecodeSplits;
    int64_t keys = rule.fewest_keys;
    while (keys < rule.most_keys &&
           tiles * ceil_div(problem.kv_length, keys) > rule.groups_of_unit * device.compute_units) {
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

// Of split_kv, in the unit of a pass over the keys at the speed of memory: one for each tile of rows. Other kernels
// than those that take keys straight from memory need so many times as long (decision 0045).
double passes(const DeviceKernelInfo &kernel, const KernelDemand &demand) {
    constexpr double kOfOthers = 2.5;
    const int64_t tiles = tiles_of_kv_head(kernel, demand.heads, demand.rows, demand.heads);
    return static_cast<double>(tiles) * (kernel.any_float ? 1.0 : kOfOthers);
}

// Instructions for so many rows of a sequence and head, in the unit of a padded row of tiles with few rows of a thread.
double work(const DeviceKernelInfo &kernel, const KernelDemand &demand) {
    if (kernel.kind == KernelKind::kSplitKv) {
        return passes(kernel, demand);
    }
    const int64_t tiles = ceil_div(demand.rows, int64_t{kernel.tile.rows});
    const double of_row = kernel.tile.warpgroups                       ? kWorkOfWarpgroups
                          : kernel.tile.thread_rows >= kManyThreadRows ? kWorkOfManyRows
                                                                       : 1.0;
    return static_cast<double>(tiles * kernel.tile.rows) * of_row;
}

// Of all the kernels for a problem, those that a device has room for.
struct Candidates {
    const DeviceKernelInfo *best = nullptr;
    const DeviceKernelInfo *smallest = nullptr;  // the one with the least shared memory, of all
    int64_t largest_head = 0;                    // of all with such hooks
};

Candidates candidates(const DeviceLimits &device, KernelKind kind, uint32_t hooks, int64_t head,
                      const KernelDemand &demand) {
    const auto rank = [&](const DeviceKernelInfo &kernel) {
        return std::tuple(kernel.matrix_type == HATTN_FLOAT32, kernel.tile.head, __builtin_popcount(kernel.hooks),
                          work(kernel, demand), kernel.tile.rows);
    };
    Candidates found;
    for (const DeviceKernelInfo &kernel : device_table().kernels) {
        if (kernel.kind != kind || std::string_view(kernel.target) != device.target.name ||
            !serves(kernel.hooks, hooks) || !takes(kernel, demand) || !device.runs(kernel)) {
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
        if (device.has_room_for(kernel) && (!found.best || rank(kernel) < rank(*found.best))) {
            found.best = &kernel;
        }
    }
    return found;
}

// Null if there is none, or it would compute much more than the usual one. Tiles of kernels that multiply other types
// are other tiles, even where their numbers are the same.
const DeviceKernelInfo *kernel_with(const TuningEntry &entry, const DeviceKernelInfo &usual, const Problem &problem,
                                    const DeviceLimits &device, const KernelPacks &packs) {
    const DeviceTile &tile = entry.device_tile;
    const DeviceKernelInfo *found = nullptr;
    for_each_device_kernel(packs, [&](const DeviceKernelInfo &kernel) {
        if (computes(kernel.kind, entry.algorithm) && std::string_view(kernel.target) == usual.target &&
            kernel.tile == tile && serves(kernel.hooks, problem.hooks) && kernel.matrix_type == usual.matrix_type &&
            takes(kernel, demand_of(problem)) && device.runs(kernel) && device.has_room_for(kernel) &&
            (!found || __builtin_popcount(kernel.hooks) < __builtin_popcount(found->hooks))) {
            found = &kernel;
        }
    });
    const bool fits = head_of(problem) <= tile.head && tile.head <= kMostPadding * usual.tile.head;
    return fits ? found : nullptr;
}

Candidates candidates(const DeviceLimits &device, hattn_algorithm algorithm, const Problem &problem) {
    const auto of = [&](KernelKind kind, const KernelDemand &demand) {
        return candidates(device, kind, problem.hooks, head_of(problem), demand);
    };
    const int64_t rows_of_kv_head = rows_of(problem) * problem.group_size();
    if (algorithm == HATTN_ALGORITHM_SPLIT_KV && rows_of_kv_head > kDecodeRows) {
        KernelDemand shared = demand_of(problem);
        shared.rows = rows_of_kv_head;
        const Candidates of_flash = of(KernelKind::kFlash, shared);
        if (of_flash.best) {
            return of_flash;
        }
    }
    return of(kind_of(algorithm), demand_of(problem));
}

// Whether keys are split though there are many rows: each tile of flash goes through many keys, and either tiles are so
// few that most compute units would have none, or most of their rows are empty, which heads that share tiles fill.
bool leaves_much_idle(const Problem &problem, const DeviceLimits &device) {
    const DeviceKernelInfo *flash = candidates(device, HATTN_ALGORITHM_FLASH, problem).best;
    const DeviceKernelInfo *shared = candidates(device, HATTN_ALGORITHM_SPLIT_KV, problem).best;
    if (!flash || !shared || problem.kv_length < kFewestKeysToSplit) {
        return false;
    }
    const int64_t tiles = count_tiles(problem, *shared, problem.group_size());
    return kUnitsOfTile * tiles <= device.compute_units || 2 * tiles <= count_tiles(problem, *flash, 1);
}

// Whether the key range is split over work groups. Where tensor cores hold all rows of a kv head in one tile of flash,
// and there are few keys, it is not: that saves the merge.
bool splits_keys(const Problem &problem, const DeviceLimits &device) {
    if (rows_of(problem) * problem.group_size() > kDecodeRows) {
        return leaves_much_idle(problem, device);
    }
    const DeviceKernelInfo *flash = candidates(device, HATTN_ALGORITHM_FLASH, problem).best;
    return !flash || flash->matrix_type == HATTN_FLOAT32 || problem.kv_length > kDecodeSplits.fewest_keys;
}

// The algorithm for its shape, else the next one that the device has room for; the first one if there is none.
hattn_algorithm algorithm_by_rule(const Problem &problem, const DeviceLimits &device) {
    const bool splits = splits_keys(problem, device);
    const hattn_algorithm first = splits ? HATTN_ALGORITHM_SPLIT_KV : HATTN_ALGORITHM_FLASH,
                          second = splits ? HATTN_ALGORITHM_FLASH : HATTN_ALGORITHM_SPLIT_KV;
    const Candidates found = candidates(device, first, problem);
    if (found.best || !found.smallest) {
        return first;  // or nothing holds such heads, on any device
    }
    for (const hattn_algorithm algorithm : {second, HATTN_ALGORITHM_NAIVE, HATTN_ALGORITHM_UNFUSED}) {
        if (candidates(device, algorithm, problem).best) {
            return algorithm;
        }
    }
    return first;
}

void require_head(int64_t head, int64_t largest, bool is_held, const DeviceTargetInfo &target) {
    require(is_held, HATTN_NOT_SUPPORTED, "key_dim and value_dim: the larger is ", head, ", but kernels for ",
            target.name, " hold heads of at most ", largest);
}

const DeviceKernelInfo &best_of(const Candidates &found, const DeviceLimits &device, int64_t head) {
    require_head(head, found.largest_head, found.smallest != nullptr, device.target);
    require(found.best, HATTN_NOT_SUPPORTED, "device: has ", device.shared_bytes,
            " bytes of shared memory for a work group, but ", found.smallest->name, ", which takes the least, takes ",
            found.smallest->shared_bytes);
    return *found.best;
}

}  // namespace

void check_heads(const DeviceTargetInfo &target, int64_t key_dim, int64_t value_dim) {
    int64_t largest = 0;
    for (const DeviceKernelInfo &kernel : device_table().kernels) {
        const bool attends = kernel.kind == KernelKind::kFlash || kernel.kind == KernelKind::kSplitKv;
        if (attends && std::string_view(kernel.target) == target.name) {
            largest = std::max<int64_t>(largest, kernel.tile.head);
        }
    }
    const int64_t head = std::max(key_dim, value_dim);
    require_head(head, largest, head <= largest, target);
}

int64_t head_of(const Problem &problem) {
    return std::max(problem.key_dim, problem.value_dim);
}

hattn_dtype matrix_type_of(const Problem &problem) {
    const bool alike = problem.q_dtype == problem.k_dtype && problem.k_dtype == problem.v_dtype;
    return alike ? problem.q_dtype : HATTN_FLOAT32;
}

KernelDemand demand_of(const Problem &problem) {
    return {.matrix_type = matrix_type_of(problem),
            .quantized = is_quantized(problem.k_dtype) || is_quantized(problem.v_dtype),
            .rows = problem.query_length,
            .heads = problem.group_size()};
}

bool takes(const DeviceKernelInfo &kernel, const KernelDemand &demand) {
    return (kernel.matrix_type == HATTN_FLOAT32 || kernel.matrix_type == demand.matrix_type) &&
           (!kernel.any_float || !demand.quantized);
}

DeviceChoice usual_choice(hattn_algorithm algorithm, const Problem &problem, const DeviceKernelInfo &kernel,
                          const DeviceLimits &device) {
    return {algorithm, &kernel, usual_split_keys(algorithm, problem, kernel, device)};
}

const DeviceKernelInfo &device_kernel(const DeviceLimits &device, KernelKind kind, uint32_t hooks, int64_t head,
                                      const KernelDemand &demand) {
    return best_of(candidates(device, kind, hooks, head, demand), device, head);
}

DeviceChoice choose_for_device(const Problem &problem, const DeviceLimits &device, hattn_algorithm asked,
                               const TuningGrids &measured, const KernelPacks &packs) {
    const TuningEntry *entry = nearest_entry(measured, problem, rows_of(problem), problem.kv_length);
    if (entry && (entry->algorithm == HATTN_ALGORITHM_FLASH || entry->algorithm == HATTN_ALGORITHM_SPLIT_KV)) {
        if (const DeviceKernelInfo *usual = candidates(device, entry->algorithm, problem).best) {
            const DeviceKernelInfo *tuned = kernel_with(*entry, *usual, problem, device, packs);
            return {entry->algorithm, tuned ? tuned : usual, entry->split_keys, Decider::kMachine, entry};
        }
    }
    const hattn_algorithm algorithm = asked != HATTN_ALGORITHM_AUTO ? asked : algorithm_by_rule(problem, device);
    const DeviceKernelInfo &kernel = best_of(candidates(device, algorithm, problem), device, head_of(problem));
    return usual_choice(algorithm, problem, kernel, device);
}

}  // namespace hattn
