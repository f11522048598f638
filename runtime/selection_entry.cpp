#include "selection_entry.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "checked.h"
#include "flash_rule.h"
#include "selection_rule.h"

namespace hattn {

namespace {

const KernelInfo *kernel_with(const KernelSet &kernels, const std::vector<const KernelInfo *> &usual,
                              const KernelTile &tile) {
    for (const auto *list : {&usual, &kernels.last_flash, &kernels.split_kv, &kernels.packed}) {
        for (const KernelInfo *kernel : *list) {
            // Of flash packs may hold both what multiplies terms and what does not.
            const bool is_alike = kernel->kind == usual.front()->kind &&
                                  (kernel->kind != KernelKind::kFlash || kernel->storage == usual.front()->storage);
            if (is_alike && kernel->tile == tile) {
                return kernel;
            }
        }
    }
    return nullptr;
}

// The measured tile, unless the rows at hand would read keys more often than those measured did, or leave more than
// half of a tile empty: then the smallest tile that reads keys as often, or as often as they would with the measured
// one, if that is less.
const KernelInfo *kernel_of_passes(const std::vector<const KernelInfo *> &by_rows, const KernelInfo *measured,
                                   const TuningEntry &entry, int64_t rows_of_kv_head) {
    const int64_t measured_rows = int64_t{1} << (entry.cell.rows + entry.family.group_exponent);
    const int64_t passes =
        std::min(ceil_div(measured_rows, measured->tile.rows), ceil_div(rows_of_kv_head, measured->tile.rows));
    const int64_t needed = ceil_div(rows_of_kv_head, passes);
    const bool fits = needed <= measured->tile.rows && 2 * needed > measured->tile.rows;
    return fits ? measured : fitting(by_rows, needed);
}

// The measured tile with the heads that share it, unless the rows at hand would leave half of it empty: then the
// smallest tile that holds them.
Choice choose_flash(const KernelSet &set, const std::vector<const KernelInfo *> &by_rows, const KernelInfo *measured,
                    const Problem &problem, int64_t heads, int64_t query_length, int64_t kv_length) {
    const auto fill = [&](const KernelInfo *kernel) {
        if (heads == 0) {
            return fill_flash_tiles(set, std::array{kernel}, kernel, problem, query_length, kv_length);
        }
        const int64_t most = std::min<int64_t>({heads, problem.group_size(), kMaxTileHeads, kernel->tile.rows});
        return Choice{HATTN_ALGORITHM_FLASH, kernel, nullptr, most, 0};
    };
    const Choice choice = fill(measured);
    const int64_t rows = query_length * choice.heads;
    return 2 * rows > measured->tile.rows ? choice : fill(fitting(by_rows, rows));
}

// How a kernel sums a dot product up, as far as its tile decides: as in schedules/targets.h and
// generators/kernel_pipeline.cpp.
struct Sums {
    bool across_lanes;  // vectors hold elements of the head, else rows
    bool by_sides;      // of pairs of elements
    bool by_quads;      // and every fourth, of few rows
    bool of_one_row;    // whose vectors across lanes are added up in another order

    bool operator==(const Sums &) const = default;
};

Sums sums_of(const KernelInfo &kernel, const TargetInfo &target) {
    constexpr int kMostRowsBesideHead = 8, kLanesOfSides = 16, kRowsOfQuads = 8, kQuad = 4;
    const KernelTile &tile = kernel.tile;
    const bool across_lanes = (kernel.kind == KernelKind::kSplitKv && tile.rows <= kMostRowsBesideHead) ||
                              (kernel.kind == KernelKind::kUnfusedScores && tile.rows < target.lanes);
    const bool by_sides = kernel.kind != KernelKind::kFlash && target.lanes >= kLanesOfSides &&
                          tile.rows == target.lanes && tile.row_vectors == 1;
    const bool by_quads = kernel.kind == KernelKind::kSplitKv && kernel.storage != KeyStorage::kAny &&
                          target.lanes >= kLanesOfSides && tile.rows == kRowsOfQuads && tile.row_vectors == tile.rows &&
                          tile.key_unroll % kQuad == 0;
    return {across_lanes, by_sides, by_quads, tile.rows == 1};
}

// Whether all of a storage's kernels that sum dot products up alike give a row the same bits. Those that multiply
// integers, or bfloat16 numbers in pairs and matrices, go by the tile in further ways.
bool sums_of_tiles_agree(KeyStorage storage) {
    return storage == KeyStorage::kFloat32 || storage == KeyStorage::kAny || storage == KeyStorage::kAllFloat16 ||
           storage == KeyStorage::kAllBfloat16;
}

}  // namespace

bool sums_alike(const KernelInfo &a, const KernelInfo &b, const TargetInfo &target) {
    if (a.storage != b.storage || std::string_view(a.cpu_features) != b.cpu_features) {
        return false;
    }
    return a.tile == b.tile ||
           (sums_of_tiles_agree(a.storage) && a.tile.keys == b.tile.keys && sums_of(a, target) == sums_of(b, target));
}

bool sums_alike(const Choice &a, const Choice &b, const Problem &problem, const TargetInfo &target) {
    const bool in_one_pass = !a.values_kernel || !b.values_kernel;
    // A sink is summed up where a tile's parts of the keys are merged, if there are several. How many there are depends
    // on the rows of the tile, of which the last one sees most.
    const bool same_rows = a.kernel->tile.rows == b.kernel->tile.rows && a.heads == b.heads;
    if (problem.has_sinks && !same_rows) {
        return false;
    }
    return a.algorithm == b.algorithm && a.split_keys == b.split_keys && sums_alike(*a.kernel, *b.kernel, target) &&
           (in_one_pass ? a.values_kernel == b.values_kernel : sums_alike(*a.values_kernel, *b.values_kernel, target));
}

const KernelInfo *kernel_of_entry(const KernelSet &kernels, const Problem &problem, const TuningEntry &entry,
                                  int64_t query_length, int64_t kv_length) {
    return kernel_with(kernels, kernels_of(kernels, entry.algorithm, problem, query_length, kv_length), entry.tile);
}

bool choose_by_entry(const KernelSet &kernels, const Problem &problem, const TuningEntry &entry, int64_t query_length,
                     int64_t kv_length, Choice &choice) {
    const std::vector<const KernelInfo *> &usual =
        kernels_of(kernels, entry.algorithm, problem, query_length, kv_length);
    const KernelInfo *kernel = kernel_with(kernels, usual, entry.tile);
    if (!kernel || (entry.invariant && problem.window_left >= 0)) {
        return false;
    }
    if (entry.algorithm == HATTN_ALGORITHM_FLASH) {
        choice = choose_flash(kernels, usual, kernel, problem, entry.heads, query_length, kv_length);
        fill_last_tiles(kernels, query_length, choice);
        return true;
    }
    if (entry.algorithm == HATTN_ALGORITHM_NAIVE) {
        choice = {entry.algorithm, kernel, nullptr, 1, 0};
        return true;
    }
    const int64_t rows_of_kv_head = query_length * problem.group_size();
    kernel = kernel_of_passes(usual, kernel, entry, rows_of_kv_head);
    const KernelInfo *values = nullptr;
    if (entry.algorithm == HATTN_ALGORITHM_UNFUSED) {
        values = fitting(kernels.unfused_values, kernel->tile.rows);
    }
    choice = {entry.algorithm, kernel, values, std::min<int64_t>(kernel->tile.rows, problem.group_size()),
              entry.split_keys};
    return true;
}

}  // namespace hattn
