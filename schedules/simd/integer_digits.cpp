#include "integer_digits.h"

#include "keys_by_row.h"

namespace hattn::schedules::simd {

using namespace Halide;
using generators::AttentionStages;
using generators::kDigits;
using generators::kLineBytes;
using generators::kPanelsOfLine;
using generators::kQuarters;
using generators::kSides;
using generators::ScoreStages;

namespace {

constexpr int kKeysAtOnce = 4;  // whose scores are a vector of quarters

constexpr int kQuads = generators::kGranuleKeys / kSides;  // of a granule

// Lanes in their quarters, in which scales are the same.
template<typename Stage>
Stage by_quarter(Stage stage, const Var &lane, int lanes) {
    Var of_quarter("of_quarter"), within("within");
    return stage.split(lane, of_quarter, within, lanes / kQuarters).vectorize(within).vectorize(of_quarter);
}

void schedule_weight_digits(AttentionStages &s, const Tile &tile, int lanes) {
    const LoopLevel chunk_loop(s.state, s.over_chunks.x);
    Var inner("k_inner");
    bound_keys(s.value_scales, s, tile)
        .compute_at(chunk_loop)
        .bound(s.quarter, 0, kQuarters)
        .reorder_storage(s.quarter, s.k, s.step, s.c);
    s.value_scales.reorder(s.quarter, s.k, s.step);
    s.value_scales.specialize(s.dense_value_scales && s.value_scale_stride == kQuarters)
        .split(s.k, s.k, inner, generators::kGranuleKeys)
        .reorder(s.quarter, inner, s.k, s.step)
        .vectorize(s.quarter)
        .vectorize(inner);
    s.value_scales.specialize(s.dense_value_scales).vectorize(s.quarter);
    // Small arrays that are indexed by numbers alone, lest LLVM keeps them, and what Halide puts in their place later,
    // out of registers.
    s.lane_scales.compute_at(chunk_loop).bound(s.lane, 0, lanes).vectorize(s.lane);
    by_quarter(s.lane_scales.update(), s.lane, lanes);
    s.lane_scales.update().unroll(s.over_lane_scales.x);
    s.largest_scale.compute_at(chunk_loop);
    s.largest_scale.update().atomic().vectorize(s.over_scales.x, lanes);
    for (Func f : {s.weight_unit, s.weight_rate}) {
        f.compute_at(chunk_loop).bound_extent(s.r, tile.rows).unroll(s.r);
    }
    bound_keys(s.weight_digits, s, tile)
        .compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound(s.digit, 0, kDigits)
        .reorder_storage(s.k, s.digit, s.r, s.c)
        .reorder(s.digit, s.k, s.r)
        .vectorize(s.k, lanes)
        .unroll(s.digit);
    s.block_digits.compute_at(chunk_loop)
        .bound_storage(s.quad, tile.keys / kSides)
        .align_bounds(s.quad, kQuads)
        .bound_extent(s.r, tile.rows)
        .bound(s.side, 0, kSides)
        .bound(s.quarter, 0, kQuarters)
        .bound(s.digit, 0, kDigits)
        .reorder_storage(s.side, s.quarter, s.quad, s.digit, s.r, s.step, s.c)
        .reorder(s.side, s.quarter, s.digit, s.r, s.quad, s.step)
        .vectorize(s.side)
        .vectorize(s.quarter)
        .unroll(s.digit);
    for (Func f : {s.lane_digits, s.lane_blocks, s.digit_sums, s.block_sums}) {
        f.compute_at(chunk_loop).bound_extent(s.r, tile.rows).bound(s.digit, 0, kDigits).unroll(s.digit).unroll(s.r);
    }
    s.lane_digits.bound(s.quad, 0, kQuads).vectorize(s.quad);
    s.lane_digits.update()
        .reorder(s.over_digits.x, s.quad, s.digit, s.r, s.over_digits.y)
        .atomic()
        .vectorize(s.over_digits.x)
        .vectorize(s.quad)
        .unroll(s.digit)
        .unroll(s.r);
    s.lane_blocks.bound(s.lane, 0, lanes).reorder(s.lane, s.digit, s.r, s.step).vectorize(s.lane);
    Var of_quad("of_quad"), within("within");
    s.lane_blocks.update()
        .split(s.lane, of_quad, within, kQuarters)
        .reorder({s.over_digits.x, within, of_quad, s.digit, s.r, s.over_digits.y, s.step})
        .atomic()
        .vectorize(s.over_digits.x)
        .vectorize(within)
        .vectorize(of_quad)
        .unroll(s.digit)
        .unroll(s.r);
    s.block_sums.bound(s.quarter, 0, kQuarters)
        .reorder(s.quarter, s.digit, s.r, s.step)
        .reorder_storage(s.quarter, s.digit, s.r, s.step, s.c)
        .vectorize(s.quarter);
}

}  // namespace

void schedule_digit_queries(ScoreStages &s, const Tile &tile, int lanes) {
    for (Func f : {s.query_steps, s.query_integers}) {
        f.compute_root().bound(s.r, 0, tile.rows).reorder(s.d, s.r).reorder_storage(s.d, s.r).vectorize(s.d, lanes);
    }
    for (Func f : {s.query_unit, s.query_peak}) {
        f.compute_root().bound(s.r, 0, tile.rows);
    }
    s.query_peak.update().reorder(s.over_positions.x, s.r).atomic().vectorize(s.over_positions.x, lanes);
    s.query_digits.compute_root()
        .bound(s.r, 0, tile.rows)
        .bound(s.digit, 0, kDigits)
        .bound(s.d, 0, s.query_positions)
        .reorder_storage(s.d, s.digit, s.r)
        .reorder(s.d, s.digit, s.r)
        .vectorize(s.d, 2 * lanes)
        .unroll(s.digit);
    s.query_offsets.compute_root().bound(s.r, 0, tile.rows).bound(s.quarter, 0, kQuarters);
    s.query_offsets.update()
        .reorder(s.over_quarter.x, s.over_quarter.y, s.quarter, s.r)
        .atomic()
        .vectorize(s.over_quarter.x);
}

void schedule_digit_scores(ScoreStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes) {
    Var granule("k_granule"), block("k_block"), inner("k_inner"), rows("r_block");
    const RVar line = s.over_scaled.x;
    bound_keys(s.dot, s, tile)
        .compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound_extent(s.c, 1)
        .reorder_storage(s.k, s.r, s.c)
        .split(s.k, granule, block, generators::kGranuleKeys)
        .split(block, block, inner, kKeysAtOnce)
        .split(s.r, rows, s.r, tile.row_vectors)
        .reorder(inner, s.r, rows, block, granule)
        .vectorize(inner)
        .unroll(s.r);
    for (const Expr &condition : {s.one_key_scale, s.whole_key_scales}) {
        s.dot.specialize(condition);
    }
    s.key_granule.compute_at(s.dot, granule);
    s.fetch_starts.compute_at(s.dot, granule);
    s.asked.compute_at(s.dot, block);
    s.quarter_scores.compute_at(s.dot, rows)
        .bound(s.quarter, 0, kQuarters)
        .reorder_storage(s.k, s.quarter, s.r, s.c)
        .reorder(s.k, s.quarter, s.r)
        .vectorize(s.k, kKeysAtOnce)
        .vectorize(s.quarter)
        .unroll(s.r);
    Stage scores = s.quarter_scores.update();
    scores.reorder(s.k, s.quarter, s.r, line).vectorize(s.k, kKeysAtOnce).vectorize(s.quarter).unroll(s.r);
    for (const Expr &usual : s.usual_heads) {
        scores.specialize(usual).unroll(line);
        s.asked.update().specialize(usual).unroll(s.over_asks.x);
    }
    const LoopLevel of_line(s.quarter_scores, line);
    s.key_line_scales.compute_at(of_line)
        .bound(s.quarter, 0, kQuarters)
        .reorder_storage(s.quarter, s.k, s.step)
        .reorder(s.quarter, s.k)
        .unroll(s.k);
    s.key_line_scales.specialize(s.one_key_scale || s.dense_key_scales).vectorize(s.quarter);
    s.quarter_sums.compute_at(of_line)
        .bound(s.quarter, 0, kQuarters)
        .bound_extent(s.k, kKeysAtOnce)
        .reorder_storage(s.k, s.quarter, s.r)
        .vectorize(s.k)
        .vectorize(s.quarter)
        .unroll(s.r);
    // As adjacent_sums.h wants it.
    s.quarter_sums.update()
        .reorder(s.over_lanes.x, s.quarter, s.k, s.r)
        .atomic()
        .vectorize(s.over_lanes.x)
        .vectorize(s.quarter)
        .unroll(s.k)
        .unroll(s.r);
    s.line_sums.compute_at(of_line)
        .reorder_storage(s.lane, s.k, s.r)
        .reorder(s.lane, s.r, s.k)
        .vectorize(s.lane, lanes)
        .unroll(s.r)
        .unroll(s.k);
    s.step_sums.compute_at(s.line_sums, s.k).reorder_storage(s.lane, s.r).vectorize(s.lane, lanes).unroll(s.r);
    for (int update = 0; update < s.step_sums.num_update_definitions(); ++update) {
        Stage stage = s.step_sums.update(update);
        if (update % 2 == 1) {
            stage.vectorize(s.lane, lanes).unroll(s.r);
            continue;
        }
        stage.reorder(s.over_products.x, s.lane, s.r, s.over_products.y)
            .atomic()
            .vectorize(s.over_products.x)
            .vectorize(s.lane, lanes)
            .unroll(s.r)
            .unroll(s.over_products.y);
    }
    s.key_line.compute_at(s.line_sums, s.k).bound(s.d, 0, kLineBytes).vectorize(s.d);
}

void schedule_digit_values(AttentionStages &s, const Var &block, const Var &rows, const Tile &tile, int lanes) {
    s.state.bound(s.d, 0, s.value_positions);
    const int panels = tile.value_unroll;
    if (panels < kPanelsOfLine) {
        // Which part of a line they are decides how bytes are interleaved.
        Var part("d_part");
        s.state.update().split(block, block, part, kPanelsOfLine / panels).unroll(part);
    }
    s.integer_output.compute_at(s.state, rows)
        .bound_extent(s.r, tile.row_vectors)
        .bound(s.lane, 0, lanes)
        .bound_extent(s.panel, panels)
        .bound(s.digit, 0, kDigits)
        .reorder_storage(s.lane, s.panel, s.digit, s.r, s.c)
        .reorder(s.lane, s.panel, s.digit, s.r, s.c)
        .unroll(s.panel)
        .unroll(s.digit)
        .unroll(s.r);
    by_quarter(s.integer_output, s.lane, lanes);
    Var of_quarter("of_quarter"), within("within");
    Stage products = s.integer_output.update();
    products.split(s.lane, of_quarter, within, lanes / kQuarters)
        .reorder(
            {s.over_key_quads.x, within, of_quarter, s.panel, s.digit, s.r, s.over_key_quads.y, s.over_key_quads.z})
        .atomic()
        .vectorize(s.over_key_quads.x)
        .vectorize(within)
        .vectorize(of_quarter)
        .unroll(s.panel)
        .unroll(s.digit)
        .unroll(s.r);
    products.specialize(s.one_value_scale);
    const LoopLevel of_quad(s.integer_output, s.over_key_quads.y);
    s.value_bytes.compute_at(of_quad)
        .bound(s.d, 0, kLineBytes)
        .bound(s.side, 0, kSides)
        .bound_extent(s.part, 1)
        .reorder_storage(s.d, s.side, s.part)
        .reorder(s.d, s.side, s.part)
        .vectorize(s.d)
        .unroll(s.side);
    Var of_half("of_half"), place("place");
    s.value_halves.compute_at(of_quad)
        .bound(s.side, 0, 2)
        .bound(s.d, 0, 2 * lanes)
        .bound(s.pair, 0, 2)
        .bound_extent(s.part, 1)
        .reorder_storage(s.side, s.d, s.pair, s.half)
        .split(s.d, of_half, place, lanes / 2)
        .reorder({s.side, place, of_half, s.pair, s.half})
        .vectorize(s.side)
        .vectorize(place)
        .vectorize(of_half)
        .unroll(s.pair)
        .unroll(s.half);
    Var pair("pair_of_word"), of_pair("of_pair"), of_word("of_word"), at("at");
    s.value_words.compute_at(of_quad)
        .bound(s.side, 0, kSides)
        .bound(s.d, 0, lanes)
        .bound_extent(s.part, 1)
        .reorder_storage(s.side, s.d, s.word)
        .split(s.side, pair, of_pair, 2)
        .split(s.d, of_word, at, lanes / kQuarters)
        .reorder({of_pair, pair, at, of_word, s.word})
        .vectorize(of_pair)
        .vectorize(pair)
        .vectorize(at)
        .vectorize(of_word)
        .unroll(s.word);
    schedule_weight_digits(s, tile, lanes);
}

}  // namespace hattn::schedules::simd
