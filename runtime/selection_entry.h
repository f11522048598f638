// What an entry of a tuning database means for a sequence of its class, or of one near it.
#pragma once

#include "selection.h"

namespace hattn {

// False if the entry does not apply: its kernel is not among those that fit the problem, or the problem has a window,
// with which kernels of other tiles start their chunks at other keys and results would not have the default's bits.
bool choose_by_entry(const KernelSet &kernels, const Problem &problem, const TuningEntry &entry, int64_t query_length,
                     int64_t kv_length, Choice &choice);

}  // namespace hattn
