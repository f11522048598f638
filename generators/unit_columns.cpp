// Which argument of a tile is which column of a launch's table.
#include <cstddef>

#include "device_launch.h"
#include "merge.h"
#include "runtime/device/unit_record.h"

namespace hattn::generators {

using schedules::gpu::UnitColumns;

namespace {

// Views of the same memory start at the same column: an offset counts elements of the one that is read.
void add_side(UnitColumns &columns, const StoredSide &side, int rows, int channel_scales, int block_scales) {
    columns.offsets[side.halves.name()] = columns.offsets[side.bytes.name()] = rows;
    columns.offsets[side.channel_scales.name()] = channel_scales;
    columns.offsets[side.block_scales.name()] = block_scales;
}

}  // namespace

UnitColumns attention_columns(const AttentionInputs &in, const std::string &output) {
    using Record = UnitRecord;
    UnitColumns columns = {
        .count = column(sizeof(Record)),
        .values = {{in.query.name() + ".extent.1", column(offsetof(Record, rows))},
                   {in.query.name() + ".extent.2", column(offsetof(Record, heads))},
                   {output + ".0.extent.1", column(offsetof(Record, tile_rows))},
                   {in.key_count.name(), column(offsetof(Record, key_count))},
                   {in.key_skip.name(), column(offsetof(Record, key_skip))},
                   {in.first_offset.name(), column(offsetof(Record, first_offset))},
                   {in.last_offset.name(), column(offsetof(Record, last_offset))},
                   {in.position_offset.name(), column(offsetof(Record, position_offset))}},
        .offsets = {{in.query.name(), column(offsetof(Record, query))},
                    {in.query_halves.name(), column(offsetof(Record, query))},
                    {in.key.name(), column(offsetof(Record, key))},
                    {in.value.name(), column(offsetof(Record, value))},
                    {in.bias.name(), column(offsetof(Record, bias))},
                    {in.mask.name(), column(offsetof(Record, mask))},
                    {in.key_granules.name(), column(offsetof(Record, key_granules))},
                    {in.value_granules.name(), column(offsetof(Record, value_granules))},
                    {in.alibi_slopes.name(), column(offsetof(Record, alibi_slopes))},
                    {in.sinks.name(), column(offsetof(Record, sinks))},
                    {in.stored_key.scale_granules.name(), column(offsetof(Record, key_granules))},
                    {in.stored_value.scale_granules.name(), column(offsetof(Record, value_granules))},
                    {output + ".0", column(offsetof(Record, output))},
                    {output + ".1", column(offsetof(Record, lse))}},
        .optional = {in.sinks.name()}};
    add_side(columns, in.stored_key, column(offsetof(Record, key)), column(offsetof(Record, key_channel_scales)),
             column(offsetof(Record, key_block_scales)));
    add_side(columns, in.stored_value, column(offsetof(Record, value)), column(offsetof(Record, value_channel_scales)),
             column(offsetof(Record, value_block_scales)));
    return columns;
}

UnitColumns merge_columns(const MergeInputs &in, const std::string &output) {
    using Record = MergeRecord;
    return {.count = column(sizeof(Record)),
            .values = {{in.partial_lse.name() + ".extent.1", column(offsetof(Record, states))}},
            .offsets = {{in.partial_output.name(), column(offsetof(Record, partial_output))},
                        {in.partial_lse.name(), column(offsetof(Record, partial_lse))},
                        {in.sinks.name(), column(offsetof(Record, sinks))},
                        {output + ".0", column(offsetof(Record, output))},
                        {output + ".1", column(offsetof(Record, lse))}},
            .optional = {in.sinks.name()}};
}

}  // namespace hattn::generators
