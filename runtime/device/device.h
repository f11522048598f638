// A device of this build: whether this machine has one, and what Halide says when it fails.
#pragma once

#include <string>
#include <vector>

#include "device_table.h"
#include "runtime/status.h"

namespace hattn {

// Null if the build has no kernels for it.
const DeviceTargetInfo *find_device_target(hattn_device device);
const char *device_name(hattn_device device);  // "cpu", "opencl", "cuda"
std::string compiled_devices();                // "cpu, opencl"

// Why the machine has no such device that works; "" if it has one. Looks once, by allocating a little memory there.
const std::string &device_unusable(const DeviceTargetInfo &target);

// Throws StatusError with what Halide said, if `code`, which one of Halide's functions returned, is an error.
void check_device(int code, const DeviceTargetInfo &target, const char *what);

// Forgets what Halide said, where a failure does not matter.
void discard_device_message();

}  // namespace hattn
