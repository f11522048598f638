// One row of the table that a launch of a device kernel takes: what of the kernel's arguments is its own. Shared with
// the generators, which index it by column.
#pragma once

#include <cstdint>

namespace hattn {

// Where rows of 16-bit queries, keys and values lie that tensor cores multiply.
enum RowLayout : int32_t {
    kRowsAnywhere,
    kRowsAligned,     // rows are whole blocks of 16 bytes, at multiples of those
    kRowsSideBySide,  // besides, granule n of the keys and of the values is the n-th behind the unit's first
};

// Of attention kernels: arguments as in generators/kernel_inputs.h. Offsets are in elements, from the start of a buffer
// to the unit's part of it, those of int4 in bytes.
struct UnitRecord {
    int32_t query, key, value, bias, mask, output, lse;
    int32_t key_granules, value_granules, alibi_slopes, sinks;  // sinks below 0: none
    int32_t key_channel_scales, value_channel_scales;
    int32_t key_block_scales, value_block_scales;
    int32_t rows, heads, tile_rows;  // tile_rows = rows * heads
    int32_t key_count, key_skip, first_offset, last_offset, position_offset;
};

// Of the two kernels of unfused: `output` and `lse` are the second one's.
struct UnfusedRecord {
    UnitRecord tile;
    int32_t weights;     // (j, r)
    int32_t statistics;  // (r) of the maximum and of the sum
};

// Of score outputs: `output` is where the scores go, `lse` the one that is known.
struct ScoreRecord {
    UnitRecord tile;
    int32_t key_dim;  // 0: no score is computed, since there is no key or no row
    int32_t keys;     // of the output; those from key_count on are masked
};

// Of append kernels, see generators/append.h: rows of one head that lie one after the other.
struct AppendRecord {
    int32_t rows, angles, output;
    int32_t count;  // of rows
};

// Of the two kernels that quantise, see generators/convert.h: the same rows, as float32 and as integers, whose offset
// is in bytes.
struct QuantizeRecord {
    int32_t rows, channel_scales, block_scales, output;
    int32_t count;  // of rows
};

// Of merge kernels, see generators/merge.h: one row of one head, whose sink may be none as well.
struct MergeRecord {
    int32_t partial_output, partial_lse, sinks, output, lse;
    int32_t states;  // 0: the row sees no key
};

}  // namespace hattn
