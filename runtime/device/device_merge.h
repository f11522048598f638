// Merging attention states in memory of a device.
#pragma once

#include "hattn/hattn.h"

namespace hattn {

// As hattn_merge_states_in_queue() takes them, checked, all on the device of `out`. Returns when results are there.
// Throws StatusError.
void merge_on_device(const hattn_queue *queue, int32_t count, const hattn_tensor *outs, const hattn_tensor *lses,
                     const hattn_tensor &out, const hattn_tensor &lse);

}  // namespace hattn
