// Keys or values of a range as arguments of a kernel.
#pragma once

#include "buffer.h"
#include "kernel_call.h"
#include "key_storage.h"

namespace hattn {

// The scales of a quantised side for one kv head, see hattn_attention_args; ones for other types.
struct SideScales {
    SideScales(const CallSite &site, const hattn_tensor &side, const hattn_tensor &scale, int64_t batch,
               int64_t kv_head, const GranuleRange &range);

    int32_t own[kMaxGranulesPerCall];
    GranuleAddress at;             // of the scales of keys
    int64_t blocks, block_stride;  // of a key
    Buffer channels;               // (d)
    Buffer of_keys;                // (block, slot, granule)
    Buffer granules;
};

struct StoredKeys {
    StoredKeys(const CallSite &site, const hattn_tensor &side, const hattn_tensor &scale, int64_t batch,
               int64_t kv_head, const KeyRange &keys);

    // Adds what kernels for any storage type take, in the order of generators/stored_side.cpp.
    void **add_storage(void **arguments);

    GranuleRange range;
    int32_t own[kMaxGranulesPerCall];
    GranuleAddress at;
    int32_t type, lines;  // lines: cache lines of a row
    Buffer elements;      // (d, slot, granule)
    Buffer granules;
    Buffer halves, bytes;  // the same memory
    SideScales scales;
};

// Whether a scale of this shape belongs to keys, not to channels.
bool scales_keys(const hattn_tensor &scale, int64_t dim);

}  // namespace hattn
