// Merging attention states in memory of a device.
#pragma once

#include "device_launch.h"
#include "hattn/hattn.h"

namespace hattn {

// What a launch of merges reads and writes, whose units are rows: the states of a row lie `state_rows` rows apart.
struct MergedStates {
    const DeviceMemory &states, &state_lse, &sinks, &out, &lse;
    int64_t dim, state_rows;
    hattn_dtype out_type;
};
void launch_merges(DeviceQueue &queue, const DeviceKernelInfo &kernel, UnitTable &table, const MergedStates &merged);

// As hattn_merge_states_in_queue() takes them, checked, all on the device of `out`. Returns when results are there.
// Throws StatusError.
void merge_on_device(const hattn_queue *queue, int32_t count, const hattn_tensor *outs, const hattn_tensor *lses,
                     const hattn_tensor &out, const hattn_tensor &lse);

}  // namespace hattn
