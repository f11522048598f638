// Which kernels of a device compute a problem.
#pragma once

#include "device.h"
#include "device_workspace.h"
#include "runtime/force.h"
#include "runtime/problem.h"

namespace hattn {

// Keys per split of split_kv.
inline constexpr int64_t kDeviceSplitKeys = 512;

struct DevicePlan {
    const DeviceTargetInfo *target;
    hattn_algorithm algorithm;          // of all sequences
    const DeviceKernelInfo *attention;  // of that algorithm
    const DeviceKernelInfo *merge;      // used with split_kv
    int64_t heads;                      // query heads of one kv head that share a tile
    std::string why_algorithm;
    DeviceWorkspace workspace = {};
};

// Of what is forced, only the algorithm concerns devices. Throws StatusError if the build has no such kernels or the
// machine no such device.
DevicePlan make_device_plan(const Problem &problem, hattn_device device, const Force &force);

}  // namespace hattn
