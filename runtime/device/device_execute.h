#pragma once

#include "device_plan.h"

namespace hattn {

// Copies the tensors, which are in host memory, to the device, launches, and copies out and lse back. Memory on the
// device and tables of units are taken here.
void execute_on_device(const Problem &problem, const DevicePlan &plan, const hattn_attention_args &args);

}  // namespace hattn
