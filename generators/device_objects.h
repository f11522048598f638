// Compiling kernels of devices ahead of time.
#pragma once

#include <string>

#include "kernel_spec.h"

namespace hattn::generators {

// Kernels of a kind for a device, a word of DeviceChoice: each as an object of its own, since Halide gives the device
// code of every kernel the same name; a response file that names them, for a linker; and what their launches ask for,
// for tests.
void write_device_objects(const std::string &device, KernelKind kind, const std::string &directory);

}  // namespace hattn::generators
