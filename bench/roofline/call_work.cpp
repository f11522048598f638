#include "call_work.h"

#include <algorithm>

#include "HalideRuntime.h"
#include "generators/attention_stages.h"

namespace hattn::roofline {

namespace {

using generators::KernelSpec;

int round_up(int value, int multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

struct Call {
    Call(const KernelSpec &spec, const schedules::TargetRow &target, void *const *arguments) {
        constexpr int kQuery = 1, kKeyCount = 11, kFirstOffset = 15, kLastOffset = 16;
        const auto number = [&](int argument) { return *static_cast<const int32_t *>(arguments[argument]); };
        const halide_dimension_t *query = static_cast<const halide_buffer_t *>(arguments[kQuery])->dim;
        first_row = query[1].min;
        heads = query[2].extent;
        rows = query[1].extent * heads;
        keys = number(kKeyCount);
        first_offset = number(kFirstOffset);
        last_offset = number(kLastOffset);
        const bool of_rows_alone = spec.tile.rows == 0 || multiplies_byte_matrices(spec.storage) ||
                                   (spec.kind == KernelKind::kSplitKv && target.split_kv.has_head_in_lanes(spec.tile));
        tile_rows = of_rows_alone ? rows : std::max(rows, spec.tile.rows);
        chunk = spec.tile.keys > 0 ? spec.tile.keys : std::max(keys, 1);
    }

    // The last key that any of the tile's first rows sees, of so many.
    int last_seen(int of_rows) const {
        return std::min(first_row + (std::min(of_rows, rows) - 1) / heads + last_offset, keys - 1);
    }

    // The first that row r sees.
    int first_seen(int r) const {
        return std::max(first_row + std::min(r, rows - 1) / heads + first_offset, 0);
    }

    int first_row, heads, rows, keys, first_offset, last_offset;
    int tile_rows, chunk;
};

// Products with the keys of a chunk, so many at a time, without those of the rows that see none of these.
double seen_scores(const Call &call, int step, int begin, int end, int block) {
    double scores = 0.0;
    for (int key = begin; key < end; key += block) {
        int unseen = 0;
        for (int rows = step; step > 0 && rows < call.tile_rows && key > call.last_seen(rows); rows += step) {
            unseen = rows;
        }
        scores += static_cast<double>(call.tile_rows - unseen) * block;
    }
    return scores;
}

void add_granules(const KernelSpec &spec, const schedules::TargetRow &target, const Call &call, CallWork &work) {
    using generators::kGranuleKeys;
    const int step = unseen_step(spec, target), block = std::max(spec.tile.key_unroll, 1);
    for (int begin = 0; begin < call.keys; begin += call.chunk) {
        const int end = begin + round_up(std::min(call.chunk, call.keys - begin), kGranuleKeys);
        work.softmax_scores += static_cast<double>(call.tile_rows) * (end - begin);
        work.key_scores += seen_scores(call, step, begin, end, step > 0 ? block : kGranuleKeys);
        work.value_scores += seen_scores(call, step, begin, end, kGranuleKeys);
    }
}

// Of matrices each panel of rows has its own first and last block of keys.
void add_matrices(const KernelSpec &spec, const Call &call, CallWork &work) {
    using generators::kJoinedRows, generators::kMatrixColumns, generators::kMatrixDepth;
    const bool in_bands = goes_in_bands(spec.storage, spec.tile.rows);
    const int joined = std::min(call.tile_rows, kJoinedRows * kMatrixColumns);
    for (int row = 0; row < call.tile_rows; row += joined) {
        const int begin = in_bands ? call.first_seen(row) / kMatrixDepth * kMatrixDepth : 0;
        const int end = round_up(call.last_seen(row + joined) + 1, kMatrixDepth);
        const double scores = static_cast<double>(joined) * std::max(end - begin, 0);
        work.key_scores += scores;
        work.value_scores += scores;
        work.softmax_scores += scores;
    }
}

}  // namespace

void add_call(const KernelSpec &spec, const schedules::TargetRow &target, void *const *arguments, CallWork &work) {
    const Call call(spec, target, arguments);
    if (multiplies_matrices(spec.storage)) {
        add_matrices(spec, call, work);
    } else {
        add_granules(spec, target, call, work);
    }
    work.rows += call.rows;
    work.keys += call.keys;
    // In bands the state is multiplied where a reference moves, and products are added where it lies.
    if (!goes_in_bands(spec.storage, spec.tile.rows)) {
        work.state_rows += static_cast<double>(call.tile_rows) * ((call.keys + call.chunk - 1) / call.chunk);
    }
}

}  // namespace hattn::roofline
