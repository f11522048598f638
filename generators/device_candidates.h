// The tiles worth trying for a kernel of a device, for the autotuner to choose from; candidates.h has those of the CPU.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device_kernels.h"

namespace hattn::generators {

// Why a kernel cannot have its tile; empty: it can. Kinds whose tile is no choice take that of the library alone.
std::string why_illegal(const DeviceTarget &target, const DeviceKernelSpec &spec);

// Legal ones without hooks that the largest of such devices has registers and shared memory for, the library's own left
// out. Empty for kinds whose tile is no choice.
std::vector<DeviceKernelSpec> candidates(const DeviceTarget &target, KernelKind kind);

// A kernel that can be compiled, whether or not it is one of the library's.
struct NamedDeviceKernel {
    DeviceKernelSpec spec;
    DeviceTarget target;
};
// What the tests verify: one of every so many candidates, with each set of hooks in turn where it may have them.
std::vector<NamedDeviceKernel> sample_candidates(const DeviceTarget &target, KernelKind kind);

// The inverse of DeviceKernelSpec::name(); empty if no device's kernels are called so. Throws std::invalid_argument
// where the tile is not legal.
std::optional<NamedDeviceKernel> device_kernel_named(const std::string &name);

}  // namespace hattn::generators
