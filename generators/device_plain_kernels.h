// Kernels of devices that hold no state from chunk to chunk: a thread computes one score or one output element after
// the other. One tile serves heads of every size, and few sets of hooks all problems.
#pragma once

#include <vector>

#include "device_kernels.h"

namespace hattn::generators {

// naive, the two kernels of unfused, score outputs, and those of device_append_kernels.h.
bool is_plain(KernelKind kind);

std::vector<DeviceKernelSpec> plain_kernels_of(const DeviceTarget &target, KernelKind kind);
KernelPipeline build_plain(const DeviceKernelSpec &spec, const DeviceTarget &target);

}  // namespace hattn::generators
