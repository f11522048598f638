// One row of the table that a launch of a device kernel takes: what of the kernel's arguments is its own. Shared with
// the generators, which index it by column.
#pragma once

#include <cstdint>

namespace hattn {

// Of attention kernels: arguments as in generators/kernel_inputs.h. Offsets are in elements, from the start of a buffer
// to the unit's part of it.
struct UnitRecord {
    int32_t query, key, value, bias, mask, output, lse;
    int32_t key_granules, value_granules, alibi_slopes, sinks;
    int32_t rows, heads, tile_rows;  // tile_rows = rows * heads
    int32_t key_count, key_skip, first_offset, last_offset, position_offset;
};

// Of merge kernels, see generators/merge.h: one row of one head.
struct MergeRecord {
    int32_t partial_output, partial_lse, sinks, output, lse;
    int32_t states;  // 0: the row sees no key
};

}  // namespace hattn
