// What the runtime knows about kernels of devices: a table that hattn-kernelgen writes. Empty in builds without
// devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>

#include "hattn/hattn.h"
#include "runtime/kernel_table.h"

struct halide_device_interface_t;

namespace hattn {

// As in schedules/gpu/tile.h.
struct DeviceTile {
    int rows, keys, head, slices, thread_rows;
    bool warpgroups;  // products by instructions that GPUs of kWarpgroupCapability have, and no others

    bool operator==(const DeviceTile &) const = default;
};

// Compute capability of the GPUs that kernels with warpgroups are for.
inline constexpr const char *kWarpgroupCapability = "9.0";

struct DeviceKernelInfo {
    const char *name;
    const char *target;
    KernelKind kind;  // one of those that devices have
    uint32_t hooks;   // a problem may have fewer, see serves()
    DeviceTile tile;
    hattn_dtype matrix_type;  // of queries, keys and values, which tensor cores multiply; with float32 any type may be
    bool any_float;           // keys and values are not quantised
    int64_t shared_bytes;     // of shared memory that a work group takes, all of it asked for by the launch
    // Computes the units of a table (unit_record.h). Arguments as of KernelInfo, with those of the table first, see
    // launch(); one stands for all units where the table has none of their own.
    int (*function)(void **arguments);
    // Of CUDA, where the build assembles them: cubins for some GPUs and the PTX; or null.
    const void *fat_binary;
};

// Whether a kernel computes those columns of a launch's table that grow from unit to unit, and has units in three
// dimensions: where it takes registers from nobody. (Tiles of flash with few rows of a thread, and those with hooks,
// would have fewer blocks on a multiprocessor, and those of flash in float32 spill.)
constexpr bool columns_grow(KernelKind kind, uint32_t hooks, hattn_dtype matrix_type, bool any_float, int thread_rows,
                            bool warpgroups) {
    constexpr int kManyThreadRows = 4;
    if (kind == KernelKind::kMerge) {
        return true;
    }
    const bool has_registers = kind == KernelKind::kSplitKv || thread_rows >= kManyThreadRows || warpgroups;
    return hooks == 0 && (any_float || (matrix_type != HATTN_FLOAT32 && has_registers));
}

inline bool columns_grow(const DeviceKernelInfo &kernel) {
    return columns_grow(kernel.kind, kernel.hooks, kernel.matrix_type, kernel.any_float, kernel.tile.thread_rows,
                        kernel.tile.warpgroups);
}

// Whether it reads scales of keys and values, of the number 1 where there are none.
constexpr bool takes_scales(const DeviceKernelInfo &kernel) {
    return kernel.matrix_type == HATTN_FLOAT32;
}

struct DeviceTargetInfo {
    const char *name;
    hattn_device device;
    const halide_device_interface_t *(*interface)();
};

struct DeviceTable {
    std::span<const DeviceTargetInfo> targets;
    std::span<const DeviceKernelInfo> kernels;
    // Of what drivers are to load, see device_code.h; null without kernels.
    std::string (*unpack_code)(const void *packed, size_t bytes);
};

const DeviceTable &device_table();

}  // namespace hattn
