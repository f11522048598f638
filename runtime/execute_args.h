// Checks of one execute's tensors against its plan's problem.
#pragma once

#include <array>

#include "hattn/hattn.h"
#include "problem.h"

namespace hattn {

struct NamedTensor {
    const hattn_tensor &tensor;
    const char *name;
};
// Outputs first.
std::array<NamedTensor, 10> tensors_of(const hattn_attention_args &args);

// Throws StatusError on the first thing wrong. Does not look at the workspace. Allocates only when it throws.
void check_arguments(const Problem &problem, const hattn_attention_args &args);

// How many query heads one call of a kernel may have, which indexes their elements with 32 bits: few where the strides
// of heads are long.
int64_t most_heads_per_call(const hattn_attention_args &args);
// Likewise how many of so many rows, of all its heads.
int64_t rows_per_call(const hattn_attention_args &args, int64_t rows);

// Strides of extents of one are the caller's to ignore: those that arithmetic could not stand are 0.
hattn_attention_args with_used_strides(hattn_attention_args args);

}  // namespace hattn
