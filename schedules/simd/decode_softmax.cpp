#include "decode_softmax.h"

#include <algorithm>

namespace hattn::schedules::simd {

using namespace Halide;
using generators::AttentionStages;
using generators::ScoreStages;

namespace {

// So many rows have their softmax side by side: each is a chain of operations that wait for each other. On Zen 3, two
// rows of float32 in cache: 0.89 to 0.97 of the time over 512 keys, 0.94 to 1.01 over 2048; eight rows 1.0.
constexpr int kRowsAtOnce = 2;

// The lanes of a granule first, of as many rows as registers hold side by side, and then these row by row, lest
// adjacent_sums.h adds some up otherwise than those of other tiles.
void schedule_slot_statistics(AttentionStages &s, const Tile &tile, int lanes) {
    Var rows("r_block");
    for (Func f : {s.slot_max, s.slot_sums}) {
        f.compute_at(s.state, s.over_chunks.x)
            .bound_extent(s.r, tile.rows)
            .bound_extent(s.c, 1)
            .bound(s.slot, 0, generators::kGranuleKeys)
            .reorder_storage(s.slot, s.r, s.c)
            .vectorize(s.slot, lanes)
            .unroll(s.slot)
            .unroll(s.r);
        f.update()
            .split(s.r, rows, s.r, std::min(tile.rows, std::max(lanes / 2, 1)))
            .reorder(s.slot, s.r, s.over_granules.x, rows)
            .vectorize(s.slot, lanes)
            .unroll(s.slot)
            .unroll(s.r);
    }
    for (Func f : {s.chunk_max, s.chunk_sum}) {
        f.update().reorder(s.over_slots.x, s.r).atomic().vectorize(s.over_slots.x);
    }
}

}  // namespace

void schedule_chunk(Func f, const ScoreStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes) {
    bound_keys(f, s, tile)
        .compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound_extent(s.c, 1)
        .reorder_storage(s.k, s.r, s.c)
        .reorder(s.k, s.r, s.c)
        .vectorize(s.k, lanes);
}

void schedule_decode_statistics(AttentionStages &s, const Tile &tile) {
    s.statistics.compute_root().bound(s.r, 0, tile.rows);
    s.statistics.update().reorder(s.r, s.over_chunks.x).unroll(s.r);
    s.statistics.update().compute_with(s.state.update(), s.over_chunks.x);
}

void schedule_decode_softmax(AttentionStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes) {
    if (!s.in_byte_matrices) {
        schedule_chunk(s.logits, s, chunk_loop, tile, lanes);
    }
    schedule_chunk(s.weights, s, chunk_loop, tile, lanes);
    for (Func f : {s.chunk_max, s.running_max}) {
        f.store_root().compute_at(s.state, s.over_chunks.x).bound_extent(s.r, tile.rows).unroll(s.r);
    }
    s.running_max.update().reorder(s.r, s.earlier_chunks.x).unroll(s.r);
    for (Func f : {s.rescale, s.chunk_sum}) {
        f.compute_at(s.state, s.over_chunks.x).bound_extent(s.r, tile.rows);
    }
    schedule_slot_statistics(s, tile, lanes);
    if (tile.rows <= kRowsAtOnce) {
        for (Func f : {s.rescale, s.chunk_sum, s.weights}) {
            f.unroll(s.r);
        }
        if (tile.keys % (2 * lanes) == 0) {  // for which there is room
            s.weights.unroll(s.k, 2);
        }
        for (Func f : {s.chunk_max, s.chunk_sum}) {
            f.update().unroll(s.r);
        }
    }
    schedule_key_seen(s, tile, lanes);
}

}  // namespace hattn::schedules::simd
