// What an entry of a tuning database means for a sequence of its class, or of one near it.
#pragma once

#include "selection.h"

namespace hattn {

// That with the entry's tile; null if none that fits the problem has it.
const KernelInfo *kernel_of_entry(const KernelSet &kernels, const Problem &problem, const TuningEntry &entry,
                                  int64_t query_length, int64_t kv_length);

// False if the entry does not apply: its kernel is not among those that fit the problem, or the problem has a window,
// with which kernels of other tiles start their chunks at other keys and results would not have the default's bits.
bool choose_by_entry(const KernelSet &kernels, const Problem &problem, const TuningEntry &entry, int64_t query_length,
                     int64_t kv_length, Choice &choice);

// Whether two kernels of an algorithm give a row the same bits: they sum up the same parts in the same order.
bool sums_alike(const KernelInfo &a, const KernelInfo &b, const TargetInfo &target);

// Whether two choices for a sequence without a window give the same bits.
bool sums_alike(const Choice &a, const Choice &b, const Problem &problem, const TargetInfo &target);

}  // namespace hattn
