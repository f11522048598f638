// Kernels for keys and values that lie in memory, or apart from each other, which plans take in place of others with
// the same tile and the same bits. See docs/decisions/0086 and 0121.
#pragma once

#include <vector>

#include "hattn/hattn.h"
#include "kernel_table.h"
#include "problem.h"

namespace hattn {

// Those of the target with the problem's hooks, made for this CPU; none where it never reads more keys and values than
// a second-level cache holds.
std::vector<const KernelInfo *> find_memory_kernels(const TargetInfo &target, const Problem &problem);

// Whether as many keys of each sequence of the batch, all read together, are more than caches are taken to hold.
bool lie_in_memory(const Problem &problem, int64_t keys);

// Whether keys of a head lie apart from each other, as they do where the heads of a token lie side by side: a CPU's own
// prefetchers, which keep to a page, ask for none ahead then.
bool lie_apart(const Problem &problem, const hattn_attention_args &args);

// Whether kernels for memory take less time over as many keys of each sequence that lie so.
bool are_worth_asking_for(const Problem &problem, int64_t keys);

// The one that takes a kernel's place; where there is none, the kernel.
const KernelInfo *in_place_of(const KernelInfo *kernel, const std::vector<const KernelInfo *> &from_memory);

}  // namespace hattn
