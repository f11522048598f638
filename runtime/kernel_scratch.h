// The scratch memory that calls of kernels take.
#pragma once

#include <cstdint>

#include "kernel_table.h"

namespace hattn {

// Bytes of scratch that one call of the merge kernel takes at most.
int64_t merge_scratch_bytes(int64_t rows, int64_t states, int64_t value_dim);

// Bytes of scratch that one call of a kernel takes at most.
int64_t kernel_scratch_bytes(const KernelInfo &kernel, int64_t key_dim, int64_t value_dim, int64_t keys);

}  // namespace hattn
