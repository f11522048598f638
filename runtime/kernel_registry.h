// Look-up in the kernel table.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel_table.h"

namespace hattn {

const char *kernel_kind_name(KernelKind kind);
bool parse_kernel_kind(std::string_view name, KernelKind *kind);  // false if unknown

// Null if unknown. "avx2" also finds "x86-avx2", "neon" "arm-neon".
const TargetInfo *find_target(std::string_view name);
bool is_runnable(const TargetInfo &target);
bool is_runnable(const KernelInfo &kernel);
const TargetInfo &best_runnable_target();  // throws StatusError if none is

const KernelInfo *find_kernel(std::string_view name);  // of the library; null if unknown

// Whether kernels with some hooks compute problems with others: those the problem lacks get neutral operands.
bool serves(uint32_t kernel_hooks, uint32_t wanted);

bool parse_storage(std::string_view name, KeyStorage *storage);  // false if unknown

// The library's kernels of a kind for a target that this CPU runs and that serve a set of hooks with the fewest others,
// ordered by rows per tile; none for keys and values in memory alone.
std::vector<const KernelInfo *> find_kernels(const TargetInfo &target, KernelKind kind, KeyStorage storage,
                                             uint32_t hooks);

// Of these what is made for this CPU, if anything is.
std::vector<const KernelInfo *> kernels_of_cpu(const TargetInfo &target, KernelKind kind, KeyStorage storage,
                                               uint32_t hooks);

// The one of a kind that has no tiles and no hooks.
const KernelInfo &only_kernel(const TargetInfo &target, KernelKind kind);

// Kernels to choose from when tuning: at least a dozen, each of which the tests verify.
std::vector<const CandidateInfo *> find_candidates(const TargetInfo &target, KernelKind kind);
// Of the kernel with a candidate's tile and some hooks.
std::string kernel_name(const CandidateInfo &candidate, uint32_t hooks);

// Kernels whose tiles are computed again by others if the log-sum-exp of a row says that not all is finite.
bool leaves_not_finite(const KernelInfo &kernel);

uint32_t hook_bit(std::string_view name);  // 0 if unknown
uint32_t hiding_hooks();                   // bits of all that can hide keys
std::string hook_names(uint32_t hooks);    // "softcap+bias", or "none"
std::vector<std::string> hook_name_list(uint32_t hooks);

}  // namespace hattn
