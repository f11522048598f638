// How much memory an execute on a device needs at most: on the host for its tables, and on the device for those and for
// what kernels leave each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/problem.h"

namespace hattn {

struct DevicePlan;

// What parts of a device workspace are aligned to: enough for a sub-buffer on any device, and what a caller has to
// give.
inline constexpr size_t kPartAlignment = 4096;
inline constexpr size_t kDeviceAlignment = 256;

struct DeviceWorkspace {
    int64_t attention_units = 0, merge_units = 0, score_units = 0, state_rows = 0, granules = 0;
    int64_t weight_units = 0,
            weight_batches = 0;  // of unfused: units whose weights there is room for, and times so many
    size_t upload_bytes = 0;     // of the host's, at its end: tables on their way to the device
    size_t host_bytes = 0, device_bytes = 0;
};

// Throws StatusError where a size does not fit.
DeviceWorkspace lay_out_device_workspace(const Problem &problem, const DevicePlan &plan);

// Entries of the table of granules that a sequence needs at most.
int64_t most_granules(const Problem &problem);

}  // namespace hattn
