#include "integer_pairs.h"

#include <algorithm>

#include "keys_by_row.h"

namespace hattn::schedules::simd {

using namespace Halide;
using generators::AttentionStages;
using generators::ScoreStages;

namespace {

// Keys side by side. Where a key has few, behind each other, all are read as they lie and shuffled; where it has eight,
// they change places by turned_stores.h.
void schedule_value_scales(AttentionStages &s, const Tile &tile, int lanes) {
    constexpr int kMany = 8;
    Var inner("k_inner");
    bound_keys(s.value_scales, s, tile).compute_at(s.state, s.over_chunks.x);
    s.value_scales.specialize(s.one_value_scale).vectorize(s.k, lanes);
    for (int few : {4, 2, 3}) {
        s.value_scales.specialize(s.dense_value_scales && s.value_scale_stride == few && s.value_blocks == few)
            .split(s.k, s.k, inner, generators::kGranuleKeys)
            .reorder(inner, s.block, s.k)
            .vectorize(inner)
            .unroll(s.block, few);
    }
    s.value_scales.specialize(s.dense_value_scales && s.value_blocks == kMany)
        .reorder(s.block, s.k)
        .vectorize(s.block, kMany);
}

}  // namespace

void schedule_integer_queries(ScoreStages &s, const Tile &tile, int lanes) {
    for (Func f : {s.query_steps, s.query_integers}) {
        f.compute_root().bound(s.r, 0, tile.rows).reorder(s.d, s.r).reorder_storage(s.d, s.r).vectorize(s.d, lanes);
    }
    s.query_unit.compute_root().bound(s.r, 0, tile.rows);
    s.query_peak.compute_root().bound(s.r, 0, tile.rows);
    s.query_peak.update().reorder(s.over_positions.x, s.r).atomic().vectorize(s.over_positions.x, lanes);
}

namespace {

// In registers, for each row and key of a block.
void keep_in_registers(ScoreStages &s, Func f, const Var &rows, int lanes) {
    f.compute_at(s.dot, rows).reorder_storage(s.lane, s.r, s.k, s.c).vectorize(s.lane, lanes).unroll(s.r).unroll(s.k);
}

}  // namespace

void schedule_scaled_sums(ScoreStages &s, const Var &block, const Var &rows, int lanes) {
    s.fetch_starts.compute_at(s.dot, block);
    s.asked.compute_at(s.dot, block);
    if (s.by_row) {
        schedule_asks(s);
    } else {
        s.fetch_lines.compute_root();
        s.asked.update().unroll(s.over_asks.x);
    }
    keep_in_registers(s, s.lane_sums, rows, lanes);
    keep_in_registers(s, s.lane_floats, rows, lanes);
    s.lane_sums.update().reorder(s.lane, s.r, s.k, s.over_scaled).vectorize(s.lane, lanes).unroll(s.r).unroll(s.k);
    // Of one row and key at a time, which needs no registers to wait in.
    s.step_sums.compute_at(s.lane_sums, s.r);
}

void unroll_parts(AttentionStages &s, const Var &block, int parts) {
    if (parts > 1) {
        Var part("d_part");
        s.state.update().split(block, block, part, parts).unroll(part);
    }
}

void schedule_integer_sums(ScoreStages &s, const Var &block, const Var &rows, int lanes) {
    schedule_scaled_sums(s, block, rows, lanes);
    keep_in_registers(s, s.lane_integers, rows, lanes);
    s.step_sums.vectorize(s.lane, lanes);
    s.step_sums.update()
        .reorder(s.over_step.x, s.lane, s.r, s.k, s.over_step.y)
        .atomic()
        .vectorize(s.over_step.x)
        .vectorize(s.lane, lanes)
        .unroll(s.over_step.y);
    Stage integers = s.lane_integers.update();
    integers.reorder(s.over_integers.x, s.lane, s.r, s.k, s.over_integers.y, s.over_integers.z)
        .atomic()
        .vectorize(s.over_integers.x)
        .vectorize(s.lane, lanes)
        .unroll(s.r)
        .unroll(s.k)
        .unroll(s.over_integers.y);
    if (s.by_row) {
        for (const Expr &usual : s.usual_heads) {
            s.lane_sums.update().specialize(usual).unroll(s.over_scaled.x);
            integers.specialize(usual).unroll(s.over_integers.z);
        }
    }
}

void schedule_integer_values(AttentionStages &s, const Var &block, const Var &rows, const Tile &tile, int lanes) {
    const LoopLevel chunk_loop(s.state, s.over_chunks.x);
    s.state.bound(s.d, 0, s.value_positions);
    const int elements = lanes * tile.value_unroll, panels = elements / (2 * lanes);
    const int loaded = std::max(panels / s.word_runs, 1);
    unroll_parts(s, block, std::max(s.value_step, elements) / elements);
    s.integer_output.compute_at(s.state, rows)
        .bound_extent(s.r, tile.row_vectors)
        .bound(s.lane, 0, 2 * lanes)
        .bound_extent(s.panel, panels)
        .reorder_storage(s.lane, s.panel, s.r, s.c)
        .reorder(s.lane, s.panel, s.r, s.c)
        .vectorize(s.lane)
        .unroll(s.panel)
        .unroll(s.r);
    s.integer_output.update()
        .reorder({s.over_key_pairs.x, s.lane, s.r, s.panel, s.over_key_pairs.y, s.over_key_pairs.z})
        .atomic()
        .vectorize(s.over_key_pairs.x)
        .vectorize(s.lane)
        .unroll(s.r)
        .unroll(s.panel);
    for (const Expr &narrow : s.narrow_values) {
        s.integer_output.update().specialize(narrow);
    }
    if (s.whole_passes.defined()) {
        s.integer_output.update().specialize(s.whole_passes);
    }
    const auto of_pair = [&](Func f, int count) {
        return f.compute_at(s.integer_output, s.over_key_pairs.y)
            .bound(s.side, 0, 2)
            .bound(s.lane, 0, 2 * lanes)
            .bound_extent(s.panel, count)
            .bound_extent(s.pair, 1);
    };
    of_pair(s.value_integers, loaded)
        .reorder_storage(s.lane, s.side, s.panel, s.pair)
        .reorder(s.lane, s.side, s.panel)
        .vectorize(s.lane)
        .unroll(s.side)
        .unroll(s.panel);
    // Shuffled in the parts that their order has.
    Var half("lane_half"), quarter("lane_quarter"), part("lane_part");
    of_pair(s.value_pairs, loaded)
        .split(s.lane, half, quarter, lanes)
        .split(quarter, quarter, part, generators::kQuarter)
        .reorder({s.side, part, quarter, half, s.panel})
        .vectorize(s.side)
        .vectorize(part)
        .vectorize(quarter)
        .vectorize(half)
        .unroll(s.panel);
    if (s.word_numbers.defined()) {
        of_pair(s.word_numbers, panels)
            .split(s.lane, half, quarter, lanes)
            .reorder({s.side, quarter, half, s.panel})
            .vectorize(s.side)
            .vectorize(quarter)
            .unroll(half)
            .unroll(s.panel);
    }
    bound_keys(s.weight_integers, s, tile)
        .compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .reorder_storage(s.k, s.r, s.block, s.c)
        .vectorize(s.k, lanes);
    schedule_weight_units(s, tile, lanes);
}

void schedule_weight_units(AttentionStages &s, const Tile &tile, int lanes) {
    const LoopLevel chunk_loop(s.state, s.over_chunks.x);
    schedule_value_scales(s, tile, lanes);
    s.largest_scale.compute_at(chunk_loop);
    s.largest_scale.update().atomic().vectorize(s.over_scales.x, lanes);
    for (Func f : {s.weight_unit, s.weight_rate}) {
        f.compute_at(chunk_loop).bound_extent(s.r, tile.rows);
    }
}

int output_elements(const AttentionStages &s, int lanes) {
    return s.all_type == HATTN_INT8 ? generators::kQuarter : lanes;
}

}  // namespace hattn::schedules::simd
