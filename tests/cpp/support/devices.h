// The devices of the library that is tested.
#pragma once

#include <string>
#include <vector>

#include "case.h"
#include "hattn/hattn.h"

namespace hattn::test {

// Names of devices that the build has kernels for, as hattn_info() gives them.
const std::vector<std::string> &device_names();
bool has_cuda_kernels();
std::vector<std::string> usable_devices();             // those that this machine has
std::string device_unusable(const std::string &name);  // why; "" if this machine has one
hattn_device device_of(const std::string &name);
hattn_context *device_context();

// All that there are kernels for.
inline constexpr hattn_algorithm kDeviceAlgorithms[] = {HATTN_ALGORITHM_NAIVE, HATTN_ALGORITHM_FLASH,
                                                        HATTN_ALGORITHM_SPLIT_KV, HATTN_ALGORITHM_UNFUSED};

// What tensor cores multiply in a plan for a device, and round weights to; float32: nothing.
hattn_dtype matrix_type(const hattn_plan *plan);

// Whether the library computes such problems on devices at all.
bool device_supports(const cases::Case &c);

}  // namespace hattn::test
