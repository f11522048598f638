// Kernel packs: kernels compiled into a shared object that the library loads at run time, see runtime/pack_file.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device_candidates.h"
#include "kernel_spec.h"

namespace hattn::generators {

struct PackedKernels {
    std::vector<NamedKernel> of_cpu;
    std::vector<NamedDeviceKernel> of_devices;
};

// What becomes of a kernel that does not compile, by its name, and of the reason. It may throw; else the pack does
// without.
using LeaveOut = std::function<void(const std::string &name, const std::string &why)>;

// Needs the assembler and the linker of binutils, `as` and `ld`, or what $HATTN_AS and $HATTN_LD name. The file
// appears whole or not at all, and not if no kernel is left. Throws std::runtime_error.
void write_pack(const PackedKernels &kernels, const std::string &path, const LeaveOut &leave_out);

}  // namespace hattn::generators
