// Compiling kernels of devices ahead of time.
#pragma once

#include <cstdint>
#include <string>

#include "device_kernels.h"
#include "kernel_spec.h"

namespace hattn::generators {

// Whether kernels of a device may come as fat binaries too, which the build makes from their PTX: `hattn_fat_` and the
// kernel's name, see cmake/HattnFatBinaries.cmake.
bool has_fat_binaries(const DeviceTarget &target);

// What a kernel's launches ask for.
struct LaunchNeeds {
    int64_t threads = 1, shared_bytes = 0;
};

// A kernel as an object of its own, since Halide gives the device code of every kernel the same name. with_ptx: beside
// `name.o` that, as name.ptx, and name.early.ptx for GPUs on which it starts early (runtime/device/early_start.h).
LaunchNeeds write_device_object(const DeviceKernelSpec &spec, const DeviceTarget &target, const std::string &object,
                                bool with_ptx = false);

// Kernels of a kind for a device, a word of DeviceChoice: their objects; a response file that names them, for a linker;
// what their launches ask for, for the table and for tests; and their PTX.
void write_device_objects(const std::string &device, KernelKind kind, const std::string &directory);

}  // namespace hattn::generators
