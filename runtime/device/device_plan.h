// Which kernels of a device compute a problem.
#pragma once

#include "device.h"
#include "device_choice.h"
#include "device_stamp.h"
#include "device_workspace.h"
#include "runtime/force.h"
#include "runtime/problem.h"

namespace hattn {

struct DevicePlan {
    const DeviceTargetInfo *target;
    hattn_algorithm algorithm;                 // of all sequences
    const DeviceKernelInfo *attention;         // of that algorithm; of unfused the first one
    const DeviceKernelInfo *merge;             // used where keys are split
    int64_t heads;                             // query heads of one kv head that share a tile
    int64_t split_keys;                        // keys per split; 0: a tile takes all that it sees
    int64_t paired_units = 0;                  // compute units, if each has room for two groups of `attention`; else 0
    std::string why_algorithm;                 // empty, or a phrase with a semicolon
    const DeviceKernelInfo *values = nullptr;  // the second one of unfused
    const DeviceKernelInfo *scores = nullptr;  // of the score output, if there is one
    Decider decider = Decider::kRule;          // of all but the heads
    const TuningEntry *entry = nullptr;        // unless the rule decided
    TuningFamily family = {};
    TuningCell cell = {};
    DeviceStamp stamp = {};
    DeviceWorkspace workspace = {};
};

// Of what is forced, the algorithm and a kernel of the device concern devices. Throws StatusError if the build has no
// such kernels or the machine no such device, or the forced kernel does not compute the problem.
DevicePlan make_device_plan(const Problem &problem, hattn_device device, const Force &force,
                            const TuningDatabase &tuning, const KernelPacks &packs);

}  // namespace hattn
