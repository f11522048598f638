// Launches that turn rows of a tensor in memory of a device by rotary position embedding.
#pragma once

#include <vector>

#include "device_queue.h"
#include "device_staging.h"
#include "row_runs.h"

namespace hattn {

// Where it is put, and what is turned: memory of the caller's, who keeps it.
struct DeviceWork {
    DeviceQueue &queue;
    DeviceStaging &staging;
    std::vector<RowRun> &runs;
    RowAngles &angles;
};

// x and out are of one type, on the device, and either the same tensor or apart; they stay until the queue is done.
// Throws StatusError.
void launch_turns(const DeviceWork &work, const hattn_tensor &x, const hattn_tensor &out, bool in_place);

}  // namespace hattn
