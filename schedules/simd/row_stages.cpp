#include "row_stages.h"

namespace hattn::schedules::simd {

using namespace Halide;
using generators::AttentionStages;
using generators::ScoreStages;

void schedule_rows(ScoreStages &s, const Tile &tile, int lanes) {
    for (Func f : {s.row, s.head}) {
        // Without the division by the head count where there is but one head, the common case in prefill.
        f.compute_root().bound(s.r, 0, tile.rows).specialize(s.single_head);
    }
    for (Func f : {s.position, s.first, s.last}) {
        f.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes);
    }
    for (Func f : s.per_row) {
        f.compute_root().bound(s.r, 0, tile.rows);
    }
    if (s.query_starts.defined()) {
        s.query_starts.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes);
    }
    if (s.in_matrices) {
        return;
    }
    if (s.in_pairs) {
        schedule_query_pairs(s, tile.rows, lanes);
    } else {
        Var block("d_block");
        s.query_tile.compute_root()
            .bound(s.r, 0, tile.rows)
            .split(s.d, block, s.d, lanes, TailStrategy::GuardWithIf)
            .reorder(s.d, s.r, block)
            .vectorize(s.d)
            .partition(block, Partition::Always);
    }
}

void schedule_query_pairs(ScoreStages &s, int rows, int lanes, const std::vector<Var> &outer) {
    Var blocks("r_block"), pass("pass"), pairs("pair_block");
    std::vector<VarOrRVar> loops = {s.pair, pass, pairs, blocks};
    loops.insert(loops.end(), outer.begin(), outer.end());
    s.query_pairs.compute_root()
        .bound(s.side, 0, 2)
        .bound(s.r, 0, rows)
        .split(s.r, blocks, s.r, lanes)
        .split(s.pair, pairs, s.pair, lanes)
        .fuse(s.side, s.r, pass)
        .reorder(loops)
        .vectorize(s.pair)
        .partition(pairs, Partition::Always);
}

void schedule_hook_tiles(ScoreStages &s, const LoopLevel &row_loop, int rows, int lanes) {
    for (generators::HookTile &operand : s.hook_tiles) {
        // Operands have keys innermost in memory: read along them, and turned on their way as turned_stores.h does.
        Func f = operand.func;
        Var keys("k_block");
        f.compute_at(row_loop)
            .bound_extent(s.r, rows)
            .bound_extent(s.c, 1)
            .split(s.k, keys, s.k, lanes, TailStrategy::RoundUp)
            .reorder(s.k, s.r, keys, s.c)
            .vectorize(s.k);
        f.specialize(operand.dense);
    }
}

void schedule_hook_asks(ScoreStages &s, const LoopLevel &of_part) {
    for (generators::HookTile &operand : s.hook_tiles) {
        if (operand.fetched.defined()) {
            operand.fetched.compute_at(of_part).bound_extent(s.c, 1).store_in(MemoryType::Stack);
            operand.fetched.update().unroll(operand.over_ask.x);
        }
    }
}

void schedule_statistics(AttentionStages &s, const Tile &tile, int lanes) {
    s.statistics.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes);
    s.statistics.update().reorder(s.r, s.over_chunks.x).vectorize(s.r, lanes).unroll(s.r);
    s.statistics.update().compute_with(s.state.update(), s.over_chunks.x);
}

void schedule_turned_output(AttentionStages &s, const Tile &tile, int lanes) {
    Var blocks("d_blocks"), parts("r_parts");
    s.output.split(s.r, parts, s.r, lanes, TailStrategy::GuardWithIf)
        .reorder(s.d, s.r, parts)
        .partition(parts, Partition::Never)
        .vectorize(s.d, lanes, TailStrategy::GuardWithIf);
    s.state.in(s.output)
        .compute_at(s.output, parts)
        .bound_extent(s.r, lanes)
        .reorder_storage(s.d, s.r)
        .split(s.d, blocks, s.d, lanes, TailStrategy::GuardWithIf)
        .reorder(s.r, s.d, blocks)
        .vectorize(s.r)
        .partition(blocks, Partition::Always);
    if (s.any_storage) {
        s.output_scale.compute_root();  // whose stride is not known
    }
}

namespace {

void schedule_seen_keys(AttentionStages &s, int lanes) {
    for (Func f : {s.seen_keys, s.seen_key, s.value_starts}) {
        f.compute_at(s.state, s.over_chunks.x);
    }
    s.seen_keys.update().unroll(s.over_lanes);
    s.seen_in_lane.compute_at(s.seen_keys, s.granule).vectorize(s.lane, lanes);
    s.seen_in_lane.update()
        .reorder(s.lane, s.over_lane_rows.x, s.over_lane_rows.y)
        .vectorize(s.lane, lanes)
        .unroll(s.over_lane_rows.x)
        .unroll(s.over_lane_rows.y, 4);
}

}  // namespace

void schedule_softmax(AttentionStages &s, const Tile &tile, int lanes) {
    for (Func f : {s.chunk_max, s.running_max}) {
        // Stored outside the chunk loop: the sliding window computes each chunk once.
        f.store_root()
            .compute_at(s.state, s.over_chunks.x)
            .bound_extent(s.r, tile.rows)
            .vectorize(s.r, lanes)
            .unroll(s.r);
    }
    if (s.carries_maximum) {
        s.statistics_before.compute_root().bound(s.r, 0, tile.rows);
    } else {
        s.running_max.update().reorder(s.r, s.earlier_chunks.x).vectorize(s.r, lanes).unroll(s.r);
    }
    for (Func f : {s.rescale, s.chunk_sum, s.weights}) {
        f.compute_at(s.state, s.over_chunks.x).bound_extent(s.r, tile.rows).vectorize(s.r, lanes).unroll(s.r);
    }
    s.chunk_max.update().reorder(s.r, s.over_keys.x, s.over_keys.y).vectorize(s.r, lanes).unroll(s.r);
    s.chunk_sum.update().reorder(s.r, s.over_keys.x, s.over_keys.y).vectorize(s.r, lanes).unroll(s.r);
    if (tile.keys > 0) {
        for (Func f : {s.logits, s.weights}) {
            f.bound_storage(s.k, tile.keys);
        }
        s.chunk_max.update().unroll(s.over_keys.x, 4);
        s.chunk_sum.update().unroll(s.over_keys.x, 4);
    }
    if (s.values_in_place) {
        schedule_seen_keys(s, lanes);
    } else if (s.hides_keys) {
        s.key_seen.compute_at(s.state, s.over_chunks.x);
        s.key_seen.update().reorder(s.over_rows, s.k).atomic().vectorize(s.over_rows, lanes);
    }
    if (s.in_matrices) {
        return;  // whose weights and values are laid out by x86/matrices.cpp
    }
    if (s.in_pairs) {
        // Pairs are stored together: two vectors that are interleaved on the way.
        const LoopLevel chunk_loop(s.state, s.over_chunks.x);
        s.weight_pairs.compute_at(chunk_loop)
            .bound(s.side, 0, 2)
            .bound_extent(s.r, tile.rows)
            .vectorize(s.r, lanes)
            .unroll(s.side);
        s.value_pairs.compute_at(chunk_loop)
            .bound(s.side, 0, 2)
            .vectorize(s.d, lanes, TailStrategy::RoundUp)
            .unroll(s.side)
            .partition(s.d, Partition::Always);
    } else if (s.hides_keys && !s.values_in_place && !s.any_storage) {
        s.chunk_value.compute_at(s.state, s.over_chunks.x)
            .vectorize(s.d, lanes, TailStrategy::RoundUp)
            .partition(s.d, Partition::Always);
    }
}

}  // namespace hattn::schedules::simd
