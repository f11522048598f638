// HATTN_FORCE: comma-separated words that override the planner, e.g. "algorithm=flash,target=avx2" or "kernel=NAME".
#pragma once

#include <string>

#include "hattn/hattn.h"
#include "kernel_pack.h"

namespace hattn {

struct Force {
    hattn_algorithm algorithm = HATTN_ALGORITHM_AUTO;
    const TargetInfo *target = nullptr;
    // At most one of them: a kernel of the CPU, or of a device.
    const KernelInfo *kernel = nullptr;
    const DeviceKernelInfo *device_kernel = nullptr;
    std::string text;  // as given
};

// Throws StatusError on unknown words, on targets this CPU cannot run, and on words that contradict each other.
Force parse_force(const char *text, const KernelPacks &packs);

// Throws StatusError where a kernel is forced that is for another device than a problem.
void check_forced_device(const Force &force, hattn_device device);

const char *algorithm_name(hattn_algorithm algorithm);

}  // namespace hattn
