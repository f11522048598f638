// Look-up in the kernel table.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel_table.h"

namespace hattn {

const char *kernel_kind_name(KernelKind kind);

// Null if unknown. "avx2" also finds "x86-avx2", "neon" "arm-neon".
const TargetInfo *find_target(std::string_view name);
bool is_runnable(const TargetInfo &target);
const TargetInfo &best_runnable_target();  // throws StatusError if none is

const KernelInfo *find_kernel(std::string_view name);  // null if unknown

// Whether kernels with some hooks compute problems with others: those the problem lacks get neutral operands.
bool serves(uint32_t kernel_hooks, uint32_t wanted);

// Kernels of a kind for a target that serve a set of hooks with the fewest others, ordered by rows per tile.
std::vector<const KernelInfo *> find_kernels(const TargetInfo &target, KernelKind kind, uint32_t hooks);

uint32_t hook_bit(std::string_view name);  // 0 if unknown
uint32_t hiding_hooks();                   // bits of all that can hide keys
std::string hook_names(uint32_t hooks);    // "softcap+bias", or "none"

}  // namespace hattn
