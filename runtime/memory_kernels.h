// Kernels for keys and values that lie in memory, which plans take in place of others with the same tile and the same
// bits. See docs/decisions/0086.
#pragma once

#include <vector>

#include "kernel_table.h"
#include "problem.h"

namespace hattn {

// Those of the target with the problem's hooks, made for this CPU; none where it never reads as many keys and values.
std::vector<const KernelInfo *> find_memory_kernels(const TargetInfo &target, const Problem &problem);

// Whether as many keys of each sequence of the batch, all read together, are more than caches are taken to hold.
bool lie_in_memory(const Problem &problem, int64_t keys);

// The one that takes a kernel's place; where there is none, the kernel.
const KernelInfo *in_place_of(const KernelInfo *kernel, const std::vector<const KernelInfo *> &from_memory);

}  // namespace hattn
