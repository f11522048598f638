// Turning the rows of a tensor, mostly queries, on the host or on a device.
#pragma once

#include <cstdint>

#include "context.h"
#include "device/device_turn.h"
#include "hattn/hattn.h"
#include "row_counts.h"

namespace hattn {

// Rows on their way from x to out, which may be the same tensor.
struct TurnedTensor {
    const hattn_tensor &x, &out;
    int64_t batch;
    RowCounts rows;
    const int32_t *offsets;  // and their name, as RowTurner takes them
    const char *offsets_name;
};

// Throws unless both are of one shape and type, in one place, and have those rows.
void check_turned(const TurnedTensor &turned);

// On the host.
void turn_on_host(const hattn_context &context, const hattn_rope &rope, const TurnedTensor &turned);
// On the device of both, in a queue that is not waited for.
void turn_on_device(const hattn_context &context, const hattn_rope &rope, const TurnedTensor &turned,
                    const DeviceWork &work);

}  // namespace hattn
