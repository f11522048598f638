// A kernel that HATTN_FORCE names, for a problem on a device.
#pragma once

#include "device.h"
#include "device_choice.h"
#include "runtime/force.h"
#include "runtime/problem.h"

namespace hattn {

// Throws StatusError, with both values, where the problem has other heads, hooks or types than the kernel computes, or
// the device has less shared memory than it takes.
void check_forced_kernel(const DeviceKernelInfo &kernel, const Problem &problem, const DeviceLimits &device);

// What a plan takes with such a kernel. Of unfused, the kernel is the first one, whichever is forced.
DeviceChoice forced_choice(const Force &force, const Problem &problem, const DeviceLimits &device);

}  // namespace hattn
