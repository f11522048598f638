#include "device_candidates.h"

#include <algorithm>
#include <cstdint>
#include <regex>
#include <stdexcept>

#include "attention_stages.h"
#include "schedules/cuda/warpgroup_layout.h"

namespace hattn::generators {

using DeviceTile = schedules::gpu::Tile;

namespace {

constexpr int kMostThreads = 1024;          // of a work group, on any device
constexpr int kWarpgroup = 128;             // threads
constexpr int kMostWarpgroupColumns = 256;  // of a product

bool has_choice(KernelKind kind) {
    return kind == KernelKind::kFlash || kind == KernelKind::kSplitKv;
}

// Of the library's kernels without hooks, one that differs from a tile in what is varied alone: what names do not tell
// is taken from it. Null if there are none for such heads.
const DeviceKernelSpec *like(const std::vector<DeviceKernelSpec> &own, const DeviceKernelSpec &spec) {
    const auto found = std::ranges::find_if(own, [&](const DeviceKernelSpec &other) {
        return !other.any_float() && other.tile.head == spec.tile.head && other.matrix_type == spec.matrix_type &&
               other.tile.warpgroups == spec.tile.warpgroups;
    });
    return found == own.end() ? nullptr : &*found;
}

bool same_name(const DeviceTile &a, const DeviceTile &b) {
    return a.rows == b.rows && a.keys == b.keys && a.head == b.head && a.slices == b.slices &&
           a.thread_rows == b.thread_rows && a.warpgroups == b.warpgroups;
}

bool is_own(const std::vector<DeviceKernelSpec> &own, const DeviceKernelSpec &spec) {
    return std::ranges::any_of(own, [&](const DeviceKernelSpec &other) {
        return other.matrix_type == spec.matrix_type && other.hooks == spec.hooks && same_name(other.tile, spec.tile);
    });
}

std::string why_no_slices(const DeviceTile &tile) {
    if (tile.rows % tile.thread_rows != 0 || tile.keys % tile.slices != 0) {
        return "rows must be whole blocks of thread_rows, and keys of slices";
    }
    if (tile.head % (kSliceVector * tile.slices) != 0) {
        return "head must be whole turns of slices, each of " + std::to_string(kSliceVector) + " elements";
    }
    return tile.thread_rows > tile.slices ? "thread_rows must not be more than slices" : "";
}

// Of rows and keys, what all threads together bring into shared memory at once, in blocks of aligned elements, as
// schedules/cuda/attention.cpp deals them.
int rows_at_once(const DeviceKernelSpec &spec) {
    const int blocks = spec.tile.head / kAlignedElements;
    return spec.tile.threads() / (blocks & -blocks);
}

std::string why_no_fragments(const DeviceKernelSpec &spec) {
    const DeviceTile &tile = spec.tile;
    const int parts = std::max(tile.slices / kFragmentSlices, 1);
    if (tile.slices % kFragmentSlices != 0) {
        return "slices must be whole fragments, of " + std::to_string(kFragmentSlices);
    }
    if (tile.thread_rows % 2 != 0 || tile.rows % (tile.thread_rows * kFragmentGroups) != 0) {
        return "thread_rows must be even, and rows whole warps of " + std::to_string(kFragmentGroups) +
               " times as many";
    }
    if (tile.keys % (parts * kFragmentColumns) != 0 || tile.head % (parts * kFragmentColumns) != 0) {
        return "keys and head must be whole fragments of " + std::to_string(kFragmentColumns) + " in each of " +
               std::to_string(parts) + " parts";
    }
    if (const int rows = rows_at_once(spec); tile.rows % rows != 0 || tile.keys % rows != 0) {
        return "rows and keys must be multiples of " + std::to_string(rows) + ", which threads load at once";
    }
    if (tile.warpgroups &&
        (tile.slices != kFragmentSlices || tile.thread_rows != 2 || spec.tile.threads() % kWarpgroup != 0)) {
        return "with warpgroups slices must be " + std::to_string(kFragmentSlices) +
               ", thread_rows 2, and threads whole warpgroups of " + std::to_string(kWarpgroup);
    }
    if (tile.warpgroups && tile.keys > kMostWarpgroupColumns) {
        return "with warpgroups keys must be at most " + std::to_string(kMostWarpgroupColumns);
    }
    if (tile.warpgroups && spec.hooks != 0) {
        return "with warpgroups there are no hooks";
    }
    return spec.hooks != 0 && tile.thread_rows > kRowsWithHooks
               ? "with hooks thread_rows must be " + std::to_string(kRowsWithHooks) + " at most"
               : "";
}

}  // namespace

std::string why_illegal(const DeviceTarget &target, const DeviceKernelSpec &spec) {
    const std::vector<DeviceKernelSpec> own = kernels_of(target, spec.kind);
    if (is_own(own, spec)) {
        return "";
    }
    if (!has_choice(spec.kind)) {
        return "this kind has no choice of tiles";
    }
    const DeviceTile &tile = spec.tile;
    if (!like(own, spec)) {
        return "heads must have a size that the library has kernels for";
    }
    if (std::min({tile.rows, tile.keys, tile.slices, tile.thread_rows}) < 1 || tile.keys % kGranuleKeys != 0) {
        return "rows, slices and thread_rows must be at least 1, and keys whole granules of " +
               std::to_string(kGranuleKeys);
    }
    const std::string why = spec.multiplies_matrices() ? why_no_fragments(spec) : why_no_slices(tile);
    if (why.empty() && spec.tile.threads() > kMostThreads) {
        return "a work group would have " + std::to_string(spec.tile.threads()) + " threads, but may have " +
               std::to_string(kMostThreads);
    }
    return why;
}

namespace {

// The lists, and what a device has for a work group.
struct DeviceSpace {
    std::vector<int> rows, keys, slices, thread_rows;
    int most_threads;
    int64_t shared_bytes;
    // Multiply-adds per operand that a thread reads from shared memory, where it multiplies a block of rows by one of
    // columns.
    double fewest_uses;
};

constexpr int64_t kSharedBytesOfCuda = 227 * 1024, kSharedBytesOfOpenCl = 48 * 1024;

DeviceSpace device_space_of(const DeviceTarget &target, const DeviceKernelSpec &like) {
    using List = std::vector<int>;
    const bool few_rows = like.kind == KernelKind::kSplitKv;
    if (target.compiled_when_loaded) {
        return {few_rows ? List{4, 8, 16} : List{8, 16, 32},
                {16, 32, 64},
                {8, 16},
                {1, 2, 4},
                128,
                kSharedBytesOfOpenCl,
                few_rows ? 0.8 : 1.2};
    }
    if (like.tile.warpgroups) {
        return {{64, 128}, {32, 64, 96, 128}, {4}, {2}, 256, kSharedBytesOfCuda, 0};
    }
    if (like.multiplies_matrices()) {
        return {few_rows ? List{16, 32} : List{64, 128}, {32, 64, 128}, {4, 8, 16}, {2, 4}, 256, kSharedBytesOfCuda, 0};
    }
    if (few_rows) {
        return {{4, 8, 16}, {64, 128}, {8, 16, 32}, {1, 2}, 256, kSharedBytesOfCuda, 0.8};
    }
    return {{32, 64, 128}, {32, 64, 128}, {8, 16, 32}, {2, 4, 8}, 256, kSharedBytesOfCuda, 1.6};
}

constexpr int kRegisters = 65536;    // of a work group
constexpr int kOtherRegisters = 40;  // of a thread, beside its sums
constexpr int kFewestThreads = 64;   // fewer leave most of a compute unit idle

// Of a thread: scores and outputs, each in a register. Fragments of a product are operands of the other, and need few
// others.
constexpr int kMostSums = 128, kMostSumsOfMatrices = 192;

double uses(int rows, int columns) {
    return static_cast<double>(rows * columns) / (rows + columns);
}

// Whether operands are used often enough, or, on tensor cores, warps share rows only where one has not the registers.
bool uses_operands_well(const DeviceKernelSpec &spec, const DeviceSpace &space) {
    const DeviceTile &tile = spec.tile;
    const int scores = tile.keys / tile.slices, outputs = tile.head / tile.slices;
    if (spec.multiplies_matrices()) {
        const int of_one_warp = tile.thread_rows * (tile.keys + tile.head) / kFragmentSlices;
        return spec.kind == KernelKind::kSplitKv || tile.slices == kFragmentSlices || 2 * of_one_warp > kMostSums;
    }
    return std::min(uses(tile.thread_rows, scores), uses(tile.thread_rows, outputs)) >= space.fewest_uses;
}

// What a tile keeps there, roughly: queries, keys, values and weights. On tensor cores the keys of two chunks, and
// weights only where warps share rows.
int64_t shared_bytes_of(const DeviceKernelSpec &spec) {
    const DeviceTile &tile = spec.tile;
    const int64_t weights = int64_t{tile.rows} * tile.keys;
    if (tile.warpgroups) {
        return 2 * (tile.rows + 2 * tile.buffers * tile.keys) * schedules::cuda::whole_swizzled_rows(tile.head);
    }
    if (spec.multiplies_matrices()) {
        return 2 * ((tile.rows + 3 * tile.keys) * tile.head + (tile.slices > kFragmentSlices ? weights : 0));
    }
    return 4 * ((tile.rows + 2 * tile.keys) * tile.head + weights);
}

bool is_worth_trying(const DeviceKernelSpec &spec, const DeviceSpace &space) {
    const DeviceTile &tile = spec.tile;
    const int threads = spec.tile.threads(), sums = tile.thread_rows * (tile.keys + tile.head) / tile.slices;
    return threads >= kFewestThreads && threads <= space.most_threads &&
           sums <= (spec.multiplies_matrices() ? kMostSumsOfMatrices : kMostSums) &&
           threads * std::max(tile.blocks, 1) * (sums + kOtherRegisters) <= kRegisters &&
           shared_bytes_of(spec) <= space.shared_bytes && uses_operands_well(spec, space);
}

template<typename Visit>
void for_each_tile(const DeviceSpace &space, const DeviceTile &base, Visit visit) {
    for (const int rows : space.rows) {
        for (const int keys : space.keys) {
            for (const int slices : space.slices) {
                for (const int thread_rows : space.thread_rows) {
                    DeviceTile tile = base;
                    tile.rows = rows;
                    tile.keys = keys;
                    tile.slices = slices;
                    tile.thread_rows = thread_rows;
                    visit(tile);
                }
            }
        }
    }
}

}  // namespace

std::vector<DeviceKernelSpec> candidates(const DeviceTarget &target, KernelKind kind) {
    std::vector<DeviceKernelSpec> found;
    if (!has_choice(kind)) {
        return found;
    }
    const std::vector<DeviceKernelSpec> own = kernels_of(target, kind);
    for (const DeviceKernelSpec &base : own) {
        if (base.hooks != 0 || like(own, base) != &base) {
            continue;  // one for each size of heads and type, of those whose names tell all
        }
        const DeviceSpace space = device_space_of(target, base);
        for_each_tile(space, base.tile, [&](const DeviceTile &tile) {
            DeviceKernelSpec spec = base;
            spec.tile = tile;
            if (!is_own(own, spec) && why_illegal(target, spec).empty() && is_worth_trying(spec, space)) {
                found.push_back(spec);
            }
        });
    }
    return found;
}

std::vector<NamedDeviceKernel> sample_candidates(const DeviceTarget &target, KernelKind kind) {
    // Primes, so that no value of a list is always missed. Of OpenCL there are few.
    const size_t step = target.compiled_when_loaded ? 5 : 13;
    const std::vector<HookMask> hooks = hook_sets();
    std::vector<NamedDeviceKernel> samples;
    const std::vector<DeviceKernelSpec> all = candidates(target, kind);
    for (size_t i = 0; i < all.size(); i += step) {
        DeviceKernelSpec spec = all[i];
        spec.hooks = hooks[samples.size() % hooks.size()];
        spec.hooks = why_illegal(target, spec).empty() ? spec.hooks : 0;
        samples.push_back({spec, target});
    }
    return samples;
}

namespace {

// The numbers of "..._r64k64s4t2h128..."; a tile without rows if there are none.
DeviceTile device_tile_in(const std::string &name) {
    static const std::regex pattern("_r([0-9]{1,6})k([0-9]{1,6})s([0-9]{1,6})t([0-9]{1,6})h([0-9]{1,6})(_|$)");
    std::smatch numbers;
    DeviceTile tile;
    if (std::regex_search(name, numbers, pattern)) {
        const auto number = [&](int i) { return std::stoi(numbers[i]); };
        tile.rows = number(1);
        tile.keys = number(2);
        tile.slices = number(3);
        tile.thread_rows = number(4);
        tile.head = number(5);
    }
    return tile;
}

}  // namespace

// Tries them all, so that names are put together in one place alone.
std::optional<NamedDeviceKernel> device_kernel_named(const std::string &name) {
    std::optional<NamedDeviceKernel> found;
    const DeviceTile named = device_tile_in(name);
    for_each_device_kernel([&](const DeviceKernelSpec &own, const DeviceTarget &target) {
        if (own.name(target.name) == name) {
            found = {own, target};
        }
        if (found || !has_choice(own.kind) || own.any_float() || own.tile.head != named.head) {
            return;
        }
        DeviceKernelSpec spec = own;
        spec.tile.rows = named.rows;
        spec.tile.keys = named.keys;
        spec.tile.slices = named.slices;
        spec.tile.thread_rows = named.thread_rows;
        for (const HookMask hooks : hook_sets()) {
            spec.hooks = hooks;
            if (spec.name(target.name) == name) {
                found = {spec, target};
            }
        }
    });
    if (found) {
        if (const std::string why = why_illegal(found->target, found->spec); !why.empty()) {
            throw std::invalid_argument("kernel '" + name + "': " + why);
        }
    }
    return found;
}

}  // namespace hattn::generators
