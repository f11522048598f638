#include "plain.h"

#include "schedules/stored.h"

namespace hattn::schedules::gpu {

using namespace Halide;
using generators::AttentionStages;
using generators::ScoreOutput;
using generators::ScoreStages;
using generators::UnfusedScores;
using generators::UnfusedValues;

namespace {

// A thread of a work group: x along keys or elements of the head, in turns, y counts rows.
struct Threads {
    Var block{"block"}, x{"x"}, turn{"turn"};
};

// An output over (along, r): neighbouring threads write neighbouring elements.
void deal_output(Func &output, const Var &along, const Var &r, const Tile &tile, const Threads &t) {
    output.split(r, t.block, r, tile.rows, TailStrategy::GuardWithIf)
        .split(along, t.turn, t.x, tile.slices, TailStrategy::GuardWithIf)
        .reorder(t.turn, t.x, r, t.block)
        .gpu_blocks(t.block)
        .gpu_threads(t.x, r);
}

// A value per row and key, for all keys of the tile, in shared memory.
void deal_scores(Func &f, const ScoreStages &s, const LoopLevel &block, const Tile &tile, const Threads &t) {
    f.compute_at(block)
        .bound_extent(s.r, tile.rows)
        .bound_extent(s.c, 1)
        .reorder_storage(s.k, s.r, s.c)
        .bound_storage(s.k, tile.keys)
        .split(s.k, t.turn, t.x, tile.slices, TailStrategy::RoundUp)
        .reorder(t.turn, t.x, s.r)
        .gpu_threads(t.x, s.r);
}

// Whole dot products stay with their thread, which brings elements into float32 one by one.
void schedule_products(ScoreStages &s, const LoopLevel &thread) {
    s.dot.compute_at(thread);
    const LoopLevel element(s.dot, s.over_dim.x);
    specialize_for_floats(s.query_tile.compute_at(element), s.query_type);
    specialize_for_storage(s.key_rows.compute_at(element), s.key_type);
}

void schedule_logits(ScoreStages &s, const LoopLevel &block, const Tile &tile, const Threads &t) {
    deal_scores(s.logits, s, block, tile, t);
    schedule_products(s, LoopLevel(s.logits, t.turn));
}

// A value per row, on a thread each.
void deal_rows(Func f, const Var &r, const LoopLevel &block, const Tile &tile) {
    f.compute_at(block).bound_extent(r, tile.rows).gpu_threads(r);
    for (int i = 0; i < f.num_update_definitions(); ++i) {
        f.update(i).gpu_threads(r);
    }
}

// A reduction over keys: first of those that are `lanes` apart, then of these parts.
void deal_reduction(Func f, const RVar &lane, int lanes, const Var &r, const LoopLevel &block, const Tile &tile) {
    Var part("part");
    Func parts = f.update().rfactor(lane, part);
    parts.compute_at(block).bound_extent(r, tile.rows).bound(part, 0, lanes);
    for (Stage stage : {Stage(parts), parts.update()}) {
        stage.reorder(part, r).gpu_threads(part, r);
    }
    deal_rows(f, r, block, tile);
}

// 1 for keys that any row sees.
void deal_seen(Func &key_seen, const Var &k, const Var &c, const LoopLevel &block, const Tile &tile, const Threads &t) {
    key_seen.compute_at(block).bound_extent(c, 1).bound_storage(k, tile.keys);
    for (Stage stage : {Stage(key_seen), key_seen.update()}) {
        Var y("y");
        stage.split(k, t.turn, y, tile.slices * tile.rows, TailStrategy::GuardWithIf)
            .split(y, y, t.x, tile.slices)
            .gpu_threads(t.x, y);
    }
}

}  // namespace

void schedule_naive(AttentionStages &s, const Tile &tile) {
    const Threads t;
    const LoopLevel block(s.output, t.block);
    deal_output(s.output, s.d, s.r, tile, t);
    schedule_logits(s, block, tile, t);
    deal_scores(s.weights, s, block, tile, t);
    for (Func f : {s.chunk_max, s.chunk_sum}) {
        f.bound_extent(s.c, 1);
        deal_reduction(f, s.over_keys.x, generators::kGranuleKeys, s.r, block, tile);
    }
    deal_rows(s.normaliser, s.r, block, tile);
    deal_seen(s.key_seen, s.k, s.c, block, tile, t);
    s.chunk_output.compute_at(s.output, t.turn);
    specialize_for_storage(s.chunk_value.compute_at(s.chunk_output, s.over_keys.x), s.value_type);
}

void schedule_unfused_scores(UnfusedScores &s, const Tile &tile) {
    const Threads t;
    const LoopLevel block(s.weights, t.block);
    deal_output(s.weights, s.j, s.r, tile, t);
    schedule_logits(s, block, tile, t);
    for (Func f : {s.row_max, s.row_sum}) {
        RVar turn("key_turn"), lane("key_lane");
        f.update().split(s.over_keys.x, turn, lane, tile.slices);
        deal_reduction(f, lane, tile.slices, s.r, block, tile);
    }
}

void schedule_unfused_values(UnfusedValues &s, const Tile &tile) {
    const Threads t;
    const LoopLevel block(s.output, t.block);
    deal_output(s.output, s.d, s.r, tile, t);
    deal_rows(s.normaliser, s.r, block, tile);
    deal_seen(s.key_seen, s.k, s.c, block, tile, t);
    for (Func f : {s.chunk_output, s.state}) {
        f.compute_at(s.output, t.turn);
    }
    specialize_for_storage(s.chunk_value.compute_at(s.chunk_output, s.over_keys.x), s.value_type);
}

void schedule_score_output(ScoreOutput &s, const Tile &tile) {
    const Threads t;
    deal_output(s.output, s.j, s.r, tile, t);
    schedule_products(s, LoopLevel(s.output, t.turn));
}

}  // namespace hattn::schedules::gpu
