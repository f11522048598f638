// Checks of one execute's tensors against its plan's problem.
#pragma once

#include "hattn/hattn.h"
#include "problem.h"

namespace hattn {

// Throws StatusError on the first thing wrong. Does not look at the workspace. Allocates only when it throws.
void check_arguments(const Problem &problem, const hattn_attention_args &args);

}  // namespace hattn
