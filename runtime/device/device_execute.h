#pragma once

#include "device_plan.h"

namespace hattn {

// Takes tensors from the host or from the device, see hattn_queue. waits: until results are there, whatever the queue.
void execute_on_device(const Problem &problem, const DevicePlan &plan, const hattn_attention_args &args, bool waits);

}  // namespace hattn
