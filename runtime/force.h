// HATTN_FORCE: comma-separated words that override the planner, e.g. "algorithm=flash,target=avx2" or "kernel=NAME".
#pragma once

#include <optional>
#include <string>
#include <string_view>

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

// All but auto.
inline constexpr hattn_algorithm kAlgorithms[] = {HATTN_ALGORITHM_NAIVE, HATTN_ALGORITHM_FLASH,
                                                  HATTN_ALGORITHM_SPLIT_KV, HATTN_ALGORITHM_UNFUSED};
const char *algorithm_name(hattn_algorithm algorithm);
std::optional<hattn_algorithm> algorithm_named(std::string_view name);  // auto too

}  // namespace hattn
