// Kernels of devices that write rows of a cache: from one floating-point type to another, keys turned on the way, and
// from float32 to integers with their scales, as the CPU's kernels do it (convert.h).
#pragma once

#include "device_kernels.h"

namespace hattn::generators {

bool is_append(KernelKind kind);
KernelPipeline build_append_kernel(const DeviceKernelSpec &spec, const DeviceTarget &target);

}  // namespace hattn::generators
