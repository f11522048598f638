#include "quads.h"

#include <algorithm>

#include "keys_by_row.h"

namespace hattn::schedules::simd {

using namespace Halide;
using generators::kQuad;
using generators::ScoreStages;

void schedule_side_sums(ScoreStages &s, const LoopLevel &level, int lanes) {
    const int rows = lanes / s.sides;  // of a vector
    RVar line(kHeadLine), step(kHeadStep);
    s.side_sums.compute_at(level)
        .bound(s.side, 0, s.sides)
        .vectorize(s.side)
        .vectorize(s.r, rows)
        .unroll(s.r)
        .unroll(s.k);
    s.side_sums.update()
        .split(s.over_pairs.x, line, step, generators::kLineFloats / s.sides)
        .reorder({s.side, s.r, s.k, step, line})
        .vectorize(s.side)
        .vectorize(s.r, rows)
        .unroll(s.r)
        .unroll(s.k)
        .partition(step, Partition::Never)
        .partition(line, s.whole_heads ? Partition::Auto : Partition::Always);
}

void schedule_query_quads(ScoreStages &s, const Tile &tile, int lanes) {
    s.query_pairs.compute_root()
        .bound(s.side, 0, kQuad)
        .bound(s.r, 0, tile.rows)
        .vectorize(s.side)
        .vectorize(s.r, lanes / kQuad);
}

namespace {

// With each step lines are asked for by stride, or with each line of float32 as many as it has in the keys' type.
void schedule_asks_of_block(ScoreStages &s, const Var &block, const Tile &tile) {
    constexpr int kSteps = generators::kLineFloats / kQuad;  // through a line
    s.fetch_starts.compute_at(s.dot, block);
    if (s.by_stride) {
        s.fetched_line.compute_at(s.side_sums, RVar(kHeadStep))
            .bound_extent(s.line, std::max(tile.key_unroll / kSteps, 1))
            .unroll(s.line);
    } else {
        s.fetch_lines.compute_root();
        s.fetched_line.compute_at(s.side_sums, RVar(kHeadLine)).unroll(s.k);
    }
}

// In float32, once for all rows.
void schedule_stored_keys(ScoreStages &s, const Var &block, int lanes) {
    Var line("d_line"), half("d_half");
    s.key_rows.compute_at(s.dot, block)
        .hoist_storage_root()
        .split(s.d, line, s.d, 2 * lanes)
        .split(s.d, half, s.d, lanes)
        .vectorize(s.d)
        .unroll(half);
    for (const Expr &usual : s.usual_heads) {
        s.key_rows.specialize(usual).unroll(line);
    }
}

}  // namespace

void schedule_quad_scores(ScoreStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes) {
    const int rows = lanes / kQuad;  // of a vector
    static_assert(kQuad == generators::kKeysAtOnce);
    const Var block = schedule_dot_by_fours(s, chunk_loop, tile);
    s.quad_sums.compute_at(s.dot, block)
        .bound(s.slot_of_quad, 0, kQuad)
        .vectorize(s.slot_of_quad)
        .vectorize(s.r, rows)
        .unroll(s.r)
        .unroll(s.quad);
    RVar side = s.over_sides.x;
    Var of_vector("r_vector");
    s.quad_sums.update()
        .split(s.r, s.r, of_vector, rows)
        .reorder(side, of_vector, s.slot_of_quad, s.r, s.quad)
        .atomic()
        .vectorize(side)
        .vectorize(of_vector)
        .unroll(s.slot_of_quad)
        .unroll(s.r)
        .unroll(s.quad);
    schedule_side_sums(s, LoopLevel(s.dot, block), lanes);
    if (s.has_quads.defined()) {
        s.side_sums.update().specialize(s.has_quads);
        s.side_sums.update().specialize(!s.has_quads);
    }
    if (s.fetched_line.defined()) {
        schedule_asks_of_block(s, block, tile);
    }
    if (s.all_type != HATTN_FLOAT32) {
        schedule_stored_keys(s, block, lanes);
    }
}

}  // namespace hattn::schedules::simd
