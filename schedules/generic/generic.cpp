#include "generic.h"

#include "schedules/stored.h"

namespace hattn::schedules::generic {

using namespace Halide;
using generators::AttentionStages;
using generators::MergeStages;
using generators::ScoreOutput;
using generators::ScoreStages;
using generators::UnfusedScores;
using generators::UnfusedValues;

namespace {

void schedule_rows(ScoreStages &s, const Tile &tile) {
    for (Func f : {s.row, s.head, s.position, s.first, s.last}) {
        f.compute_root().bound(s.r, 0, tile.rows);
    }
    for (Func f : s.per_row) {
        f.compute_root().bound(s.r, 0, tile.rows);
    }
    s.query_tile.compute_root().bound(s.r, 0, tile.rows);
}

}  // namespace

// Rows in lanes, one key and one head element at a time.
void schedule_attention(AttentionStages &s, const Tile &tile, int lanes) {
    schedule_rows(s, tile);
    s.output.reorder(s.d, s.r);
    s.normaliser.compute_root().bound(s.r, 0, tile.rows);
    s.state.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes);
    s.state.update().reorder(s.r, s.d, s.over_chunks.x).vectorize(s.r, lanes);
    s.statistics.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes);
    s.statistics.update().reorder(s.r, s.over_chunks.x).vectorize(s.r, lanes);
    s.statistics.update().compute_with(s.state.update(), s.over_chunks.x);

    s.chunk_output.compute_at(s.state, s.d).bound_extent(s.r, tile.rows).vectorize(s.r, lanes);
    s.chunk_output.update().reorder(s.r, s.d, s.over_keys.x, s.over_keys.y).vectorize(s.r, lanes);
    for (Func f : {s.chunk_max, s.running_max}) {
        f.store_root().compute_at(s.state, s.over_chunks.x).bound_extent(s.r, tile.rows).vectorize(s.r, lanes);
    }
    s.running_max.update().reorder(s.r, s.earlier_chunks.x).vectorize(s.r, lanes);
    for (Func f : {s.rescale, s.chunk_sum, s.weights, s.logits}) {
        f.compute_at(s.state, s.over_chunks.x).bound_extent(s.r, tile.rows).vectorize(s.r, lanes);
    }
    s.logits.bound_extent(s.c, 1);  // see schedules/simd/rows_in_lanes.cpp
    for (Func f : {s.chunk_max, s.chunk_sum}) {
        f.update().reorder(s.r, s.over_keys.x, s.over_keys.y).vectorize(s.r, lanes);
    }
    s.dot.compute_at(s.logits, s.k).vectorize(s.r, lanes);
    s.dot.update().reorder(s.r, s.k, s.over_dim).vectorize(s.r, lanes);
    if (s.any_storage) {
        schedule_stored(s.key_rows, s.d, s.key_type, LoopLevel(s.logits, s.k), lanes);
        schedule_stored(s.chunk_value, s.d, s.value_type, LoopLevel(s.state, s.over_chunks.x), lanes);
    }
    if (s.hides_keys) {
        s.key_seen.compute_at(s.state, s.over_chunks.x);
        s.key_seen.update().reorder(s.over_rows, s.k);
    }
}

void schedule_unfused_scores(UnfusedScores &s, const Tile &tile, int lanes) {
    schedule_rows(s, tile);
    for (Func f : {s.logits, s.exponentials}) {
        f.compute_root().bound(s.r, 0, tile.rows).bound(s.k, 0, tile.keys).vectorize(s.r, lanes);
    }
    s.dot.compute_at(s.logits, s.k).vectorize(s.r, lanes);
    s.dot.update().reorder(s.r, s.k, s.over_dim).vectorize(s.r, lanes);
    for (Func f : {s.row_max, s.row_sum}) {
        f.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes);
        f.update().reorder(s.r, s.over_keys.x, s.over_keys.y).vectorize(s.r, lanes);
    }
    if (s.any_storage) {
        schedule_stored(s.key_rows, s.d, s.key_type, LoopLevel(s.logits, s.k), lanes);
    }
}

void schedule_unfused_values(UnfusedValues &s, const Tile &tile, int lanes) {
    s.output.reorder(s.d, s.r);
    s.normaliser.compute_root().bound(s.r, 0, tile.rows);
    s.state.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes);
    s.state.update().reorder(s.r, s.d, s.over_chunks.x).vectorize(s.r, lanes);
    s.chunk_output.compute_at(s.state, s.d).bound_extent(s.r, tile.rows).vectorize(s.r, lanes);
    s.chunk_output.update().reorder(s.r, s.d, s.over_keys.x, s.over_keys.y).vectorize(s.r, lanes);
    s.row_weights.compute_at(s.state, s.over_chunks.x).bound_extent(s.r, tile.rows).bound_extent(s.k, tile.keys);
    if (s.any_storage) {
        schedule_stored(s.chunk_value, s.d, s.value_type, LoopLevel(s.state, s.over_chunks.x), lanes);
    }
    if (s.hides_keys) {
        s.key_seen.compute_at(s.state, s.over_chunks.x).bound_extent(s.k, tile.keys);
        s.key_seen.update().reorder(s.over_rows, s.k);
    }
}

// A block of scores with rows in lanes, written out row by row.
void schedule_scores(ScoreOutput &s, const Tile &tile, int lanes) {
    schedule_rows(s, tile);
    Var block("k_block"), inner("k_inner");
    s.known_lse.compute_root().bound(s.r, 0, tile.rows);
    s.output.split(s.j, block, inner, tile.keys, TailStrategy::GuardWithIf).reorder(inner, s.r, block);
    s.logits.compute_at(s.output, block)
        .bound_extent(s.r, tile.rows)
        .bound_extent(s.k, tile.keys)
        .reorder(s.r, s.k, s.c)
        .vectorize(s.r, lanes);
    s.dot.compute_at(s.logits, s.k).vectorize(s.r, lanes);
    s.dot.update().reorder(s.r, s.k, s.over_dim).vectorize(s.r, lanes);
    if (s.any_storage) {
        schedule_stored(s.key_rows, s.d, s.key_type, LoopLevel(s.logits, s.k), lanes);
    }
}

void schedule_merge(MergeStages &s, const Tile &, int lanes) {
    s.maximum.compute_root();
    s.maximum.update().reorder(s.r, s.over_states);
    s.weights.compute_root().reorder(s.n, s.r);
    s.total.compute_root();
    s.sum.compute_at(s.output, s.i).vectorize(s.d, lanes);
    s.sum.update().reorder(s.d, s.over_states, s.r).vectorize(s.d, lanes, TailStrategy::GuardWithIf);
    s.output.reorder(s.d, s.i, s.h).vectorize(s.d, lanes, TailStrategy::GuardWithIf);
}

}  // namespace hattn::schedules::generic
