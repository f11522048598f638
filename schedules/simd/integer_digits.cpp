#include "integer_digits.h"

#include <algorithm>

#include "integer_pairs.h"
#include "keys_by_row.h"
#include "words_of_four.h"

namespace hattn::schedules::simd {

using namespace Halide;
using generators::AttentionStages;
using generators::kDigits;
using generators::kKeysAtOnce;
using generators::kKeysOfPair;
using generators::kLineBytes;
using generators::kPanelsOfLine;
using generators::kQuarters;
using generators::kQuarterWords;
using generators::kSides;
using generators::ScoreStages;

namespace {

// Scored at a time, for most of whose sums there are registers. Of int4 the bytes of four keys take twice as many.
constexpr int kScoredRows = 8, kScoredRowsOfInt4 = 4;

constexpr int kQuads = generators::kGranuleKeys / kSides;  // of a granule

// Lanes in their quarters, in which scales are the same.
template<typename Stage>
Stage by_quarter(Stage stage, const Var &lane, int lanes) {
    Var of_quarter("of_quarter"), within("within");
    return stage.split(lane, of_quarter, within, lanes / kQuarters).vectorize(within).vectorize(of_quarter);
}

void schedule_weight_digits(AttentionStages &s, const Tile &tile, int lanes) {
    generators::DigitScores &q = s.digits;
    generators::DigitValues &v = s.value_digits;
    const LoopLevel chunk_loop(s.state, s.over_chunks.x);
    Var inner("k_inner");
    bound_keys(s.value_scales, s, tile)
        .compute_at(chunk_loop)
        .bound(q.quarter, 0, kQuarters)
        .reorder_storage(q.quarter, s.k, s.step, s.c);
    s.value_scales.reorder(q.quarter, s.k, s.step);
    const auto by_granule = [&](const Expr &condition) {
        return s.value_scales.specialize(condition)
            .split(s.k, s.k, inner, generators::kGranuleKeys)
            .reorder(q.quarter, inner, s.k, s.step)
            .vectorize(q.quarter);
    };
    by_granule(s.dense_value_scales && s.value_scale_stride == kQuarters).vectorize(inner);
    by_granule(s.dense_value_scales).unroll(inner);
    // Small arrays that are indexed by numbers alone, lest LLVM keeps them, and what Halide puts in their place later,
    // out of registers.
    v.lane_scales.compute_at(chunk_loop).bound(s.lane, 0, lanes).vectorize(s.lane);
    by_quarter(v.lane_scales.update(), s.lane, lanes);
    v.lane_scales.update().unroll(v.over_lane_scales.x);
    s.largest_scale.compute_at(chunk_loop);
    s.largest_scale.update().atomic().vectorize(s.over_scales.x, lanes);
    for (Func f : {s.weight_unit, s.weight_rate}) {
        f.compute_at(chunk_loop).bound_extent(s.r, tile.rows).unroll(s.r);
    }
    bound_keys(v.weight_digits, s, tile)
        .compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound(q.digit, 0, kDigits)
        .reorder_storage(s.k, q.digit, s.r, s.c)
        .reorder(q.digit, s.k, s.r)
        .vectorize(s.k, lanes)
        .unroll(q.digit);
    v.block_digits.compute_at(chunk_loop)
        .bound_storage(v.quad, tile.keys / kSides)
        .align_bounds(v.quad, kQuads)
        .bound_extent(s.r, tile.rows)
        .bound(s.side, 0, kSides)
        .bound(q.quarter, 0, kQuarters)
        .bound(q.digit, 0, kDigits)
        .reorder_storage(s.side, q.quarter, q.digit, v.quad, s.r, s.step, s.c)
        .reorder(s.side, q.quarter, q.digit, s.r, v.quad, s.step)
        .vectorize(s.side)
        .vectorize(q.quarter)
        .unroll(q.digit)
        .unroll(s.r);
    for (Func f : {v.lane_digits, v.digit_sums, v.block_sums}) {
        f.compute_at(chunk_loop).bound_extent(s.r, tile.rows).bound(q.digit, 0, kDigits).unroll(q.digit).unroll(s.r);
    }
    v.lane_digits.bound(v.quad, 0, kQuads).vectorize(v.quad);
    v.lane_digits.update()
        .reorder(v.over_digits.x, v.quad, q.digit, s.r, v.over_digits.y)
        .atomic()
        .vectorize(v.over_digits.x)
        .vectorize(v.quad)
        .unroll(q.digit)
        .unroll(s.r);
    v.lane_blocks.compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound(s.lane, 0, lanes)
        .reorder(s.lane, s.r, s.step)
        .vectorize(s.lane)
        .unroll(s.r);
    Var of_quad("of_quad"), digit("digit"), within("within");
    v.lane_blocks.update()
        .split(s.lane, digit, within, kQuarters)
        .split(digit, of_quad, digit, kDigits)
        .reorder(
            {v.over_lane_blocks.x, within, digit, of_quad, s.r, v.over_lane_blocks.y, v.over_lane_blocks.z, s.step})
        .atomic()
        .vectorize(v.over_lane_blocks.x)
        .vectorize(within)
        .vectorize(digit)
        .vectorize(of_quad)
        .unroll(s.r)
        .unroll(v.over_lane_blocks.y);
    v.block_sums.bound(q.quarter, 0, kQuarters)
        .reorder(q.quarter, q.digit, s.r, s.step)
        .reorder_storage(q.quarter, q.digit, s.r, s.step, s.c)
        .vectorize(q.quarter);
}

}  // namespace

void schedule_digit_queries(ScoreStages &s, const Tile &tile, int lanes) {
    generators::DigitScores &q = s.digits;
    schedule_integer_queries(s, tile, lanes);
    q.query_digits.compute_root()
        .bound(s.r, 0, tile.rows)
        .bound(q.digit, 0, kDigits)
        .bound(s.d, 0, q.query_positions)
        .reorder_storage(s.d, q.digit, s.r)
        .reorder(s.d, q.digit, s.r)
        .vectorize(s.d, 2 * lanes)
        .unroll(q.digit);
    if (!q.query_offsets.defined()) {
        return;  // of matrices, whose bytes have signs
    }
    q.query_offsets.compute_root().bound(s.r, 0, tile.rows).bound(q.quarter, 0, kQuarters);
    q.query_offsets.update()
        .reorder(q.over_quarter.x, q.over_quarter.y, q.over_quarter.z, q.quarter, s.r)
        .atomic()
        .vectorize(q.over_quarter.x);
    q.key_offsets.compute_root()
        .bound(s.r, 0, tile.rows)
        .bound(q.key_of_four, 0, kKeysAtOnce)
        .bound(q.quarter, 0, kQuarters)
        .vectorize(q.key_of_four)
        .vectorize(q.quarter);
}

// The products of one digit, a shift, and those of the other.
void schedule_step_digits(ScoreStages &s, const RDom &products, int lanes) {
    s.step_sums.vectorize(s.lane, lanes).unroll(s.r);
    for (int update = 0; update < s.step_sums.num_update_definitions(); ++update) {
        Stage stage = s.step_sums.update(update);
        if (update % 2 == 1) {
            stage.vectorize(s.lane, lanes).unroll(s.r);
            continue;
        }
        stage.reorder(products.x, s.lane, s.r, products.y)
            .atomic()
            .vectorize(products.x)
            .vectorize(s.lane, lanes)
            .unroll(s.r)
            .unroll(products.y);
    }
}

namespace {

void schedule_words(ScoreStages &s, const LoopLevel &of_line, const Tile &tile) {
    generators::DigitScores &q = s.digits;
    q.query_words.compute_root()
        .bound(s.side, 0, kSides)
        .bound(q.key_of_four, 0, kKeysAtOnce)
        .bound(q.quarter, 0, kQuarters)
        .bound(q.word, 0, kQuarterWords)
        .bound(q.nibble, 0, s.all_type == HATTN_INT4 ? generators::kNibbles : 1)
        .bound(q.digit, 0, kDigits)
        .bound(s.r, 0, tile.rows)
        .reorder_storage(s.side, q.key_of_four, q.quarter, q.nibble, q.word, s.step, q.digit, s.r)
        .reorder(s.side, q.key_of_four, q.quarter, q.nibble, q.word, s.step, q.digit, s.r)
        .vectorize(s.side)
        .vectorize(q.key_of_four)
        .vectorize(q.quarter)
        .unroll(q.word);
    q.word_sums.compute_at(of_line)
        .bound(q.key_of_four, 0, kKeysAtOnce)
        .bound(q.quarter, 0, kQuarters)
        .bound(q.digit, 0, kDigits)
        .reorder_storage(q.key_of_four, q.quarter, q.digit, s.r)
        .reorder(q.key_of_four, q.quarter, q.digit, s.r)
        .vectorize(q.key_of_four)
        .vectorize(q.quarter)
        .unroll(q.digit)
        .unroll(s.r);
    const RDom &over = q.over_words;
    q.word_sums.update()
        .reorder({over.x, q.key_of_four, q.quarter, q.digit, s.r, over.y, over.z})
        .atomic()
        .vectorize(over.x)
        .vectorize(q.key_of_four)
        .vectorize(q.quarter)
        .unroll(q.digit)
        .unroll(s.r)
        .unroll(over.y)
        .unroll(over.z);
    const LoopLevel of_joined(q.word_sums, over.z);
    schedule_words_of_four(s, q, kSides, of_joined);
    q.key_line.compute_at(of_joined).bound(s.d, 0, kLineBytes).vectorize(s.d).unroll(s.k);
}

void schedule_lines(ScoreStages &s, const LoopLevel &of_line, int lanes) {
    generators::DigitScores &q = s.digits;
    q.quarter_sums.compute_at(of_line)
        .bound(q.quarter, 0, kQuarters)
        .bound(q.key_of_four, 0, kKeysAtOnce)
        .reorder_storage(q.key_of_four, q.quarter, s.r)
        .vectorize(q.key_of_four)
        .vectorize(q.quarter)
        .unroll(s.r);
    // As adjacent_sums.h wants it.
    q.quarter_sums.update()
        .reorder(s.over_lanes.x, q.quarter, q.key_of_four, s.r)
        .atomic()
        .vectorize(s.over_lanes.x)
        .vectorize(q.quarter)
        .unroll(q.key_of_four)
        .unroll(s.r);
    q.line_sums.compute_at(of_line)
        .reorder_storage(s.lane, q.key_of_four, s.r)
        .reorder(s.lane, s.r, q.key_of_four)
        .vectorize(s.lane, lanes)
        .unroll(s.r)
        .unroll(q.key_of_four);
    s.step_sums.compute_at(of_line).reorder_storage(s.lane, s.r, s.k).bound_extent(s.k, kKeysAtOnce).unroll(s.k);
    for (int update = 0; update < s.step_sums.num_update_definitions(); ++update) {
        s.step_sums.update(update).unroll(s.k);
    }
    schedule_step_digits(s, q.over_products, lanes);
    q.key_line.compute_at(of_line).bound(s.d, 0, kLineBytes).vectorize(s.d).bound_extent(s.k, kKeysAtOnce).unroll(s.k);
}

}  // namespace

void schedule_digit_scores(ScoreStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes) {
    generators::DigitScores &q = s.digits;
    Var granule("k_granule"), block("k_block"), inner("k_inner"), rows("r_block");
    const RVar line = s.over_scaled.x;
    bound_keys(s.dot, s, tile)
        .compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound_extent(s.c, 1)
        .reorder_storage(s.k, s.r, s.c)
        .split(s.k, granule, block, generators::kGranuleKeys)
        .split(block, block, inner, kKeysAtOnce)
        .split(s.r, rows, s.r, std::min(tile.row_vectors, s.all_type == HATTN_INT4 ? kScoredRowsOfInt4 : kScoredRows))
        .reorder(inner, s.r, rows, block, granule)
        .vectorize(inner)
        .unroll(s.r);
    for (const Expr &condition : {s.one_key_scale, q.whole_key_scales, q.wide_key_scales}) {
        s.dot.specialize(condition);
    }
    q.key_granule.compute_at(s.dot, granule);
    s.fetch_starts.compute_at(s.dot, granule);
    s.asked.compute_at(s.dot, block);
    q.key_scores.compute_at(s.dot, rows)
        .bound(q.key_of_four, 0, kKeysAtOnce)
        .reorder_storage(q.key_of_four, s.r, q.four, s.c)
        .reorder(q.key_of_four, s.r)
        .vectorize(q.key_of_four)
        .unroll(s.r);
    // As adjacent_sums.h wants it.
    q.key_scores.update()
        .reorder(q.over_quarters.x, q.key_of_four, s.r)
        .atomic()
        .vectorize(q.over_quarters.x)
        .vectorize(q.key_of_four)
        .unroll(s.r);
    q.quarter_scores.compute_at(s.dot, rows)
        .bound(q.key_of_four, 0, kKeysAtOnce)
        .bound(q.quarter, 0, kQuarters)
        .reorder_storage(q.key_of_four, q.quarter, s.r, q.four, s.c)
        .reorder(q.key_of_four, q.quarter, s.r)
        .vectorize(q.key_of_four)
        .vectorize(q.quarter)
        .unroll(s.r);
    Stage scores = q.quarter_scores.update();
    if (s.all_type == HATTN_INT8) {
        // Two quarters share a scale.
        Var of_block("of_block");
        scores.split(q.quarter, q.quarter, of_block, 2).reorder(q.key_of_four, of_block, q.quarter, s.r, line);
        scores.vectorize(q.key_of_four).vectorize(of_block).vectorize(q.quarter).unroll(s.r);
    } else {
        scores.reorder(q.key_of_four, q.quarter, s.r, line).vectorize(q.key_of_four).vectorize(q.quarter).unroll(s.r);
    }
    if (s.one_head) {
        scores.unroll(line);
        s.asked.update().unroll(s.over_asks.x);
    } else {
        for (const Expr &usual : s.usual_heads) {
            scores.specialize(usual).unroll(line);
            s.asked.update().specialize(usual).unroll(s.over_asks.x);
        }
    }
    const LoopLevel of_line(q.quarter_scores, line);
    q.key_line_scales.compute_at(of_line)
        .bound(q.quarter, 0, kQuarters)
        .reorder_storage(q.quarter, s.k, s.step)
        .reorder(q.quarter, s.k)
        .unroll(s.k);
    q.key_line_scales.specialize(s.one_key_scale || q.dense_key_scales).vectorize(q.quarter);
    if (q.word_sums.defined()) {
        schedule_words(s, of_line, tile);
    } else {
        schedule_lines(s, of_line, lanes);
    }
}

void schedule_interleaved_bytes(const AttentionStages &s, InterleavedBytes bytes, const LoopLevel &of_line, int lanes) {
    Var of_half("of_half"), place("place");
    bytes.halves.compute_at(of_line)
        .bound(s.side, 0, 2)
        .bound(s.d, 0, 2 * lanes)
        .bound(s.pair, 0, 2)
        .bound_extent(s.part, 1)
        .reorder_storage(s.side, s.d, s.pair, bytes.half)
        .split(s.d, of_half, place, lanes / 2)
        .reorder({s.side, place, of_half, s.pair, bytes.half})
        .vectorize(s.side)
        .vectorize(place)
        .vectorize(of_half)
        .unroll(s.pair)
        .unroll(bytes.half);
    Var pair("pair_of_word"), of_pair("of_pair"), of_word("of_word"), at("at");
    bytes.words.compute_at(of_line)
        .bound(s.side, 0, kSides)
        .bound(bytes.lane, 0, lanes)
        .bound_extent(s.part, 1)
        .reorder_storage(s.side, bytes.lane, bytes.word)
        .split(s.side, pair, of_pair, 2)
        .split(bytes.lane, of_word, at, lanes / kQuarters)
        .reorder({of_pair, pair, at, of_word, bytes.word})
        .vectorize(of_pair)
        .vectorize(pair)
        .vectorize(at)
        .vectorize(of_word)
        .unroll(bytes.word);
}

void schedule_digit_values(AttentionStages &s, const Var &block, const Var &rows, const Tile &tile, int lanes) {
    generators::DigitScores &q = s.digits;
    generators::DigitValues &v = s.value_digits;
    s.state.bound(s.d, 0, s.value_positions);
    const int panels = tile.value_unroll;
    unroll_parts(s, block, kPanelsOfLine / panels);
    s.integer_output.compute_at(s.state, rows)
        .bound_extent(s.r, tile.row_vectors)
        .bound(s.lane, 0, lanes)
        .bound_extent(s.panel, panels)
        .bound(q.digit, 0, kDigits)
        .reorder_storage(s.lane, s.panel, q.digit, s.r, s.c)
        .reorder(s.lane, s.panel, q.digit, s.r, s.c)
        .unroll(s.panel)
        .unroll(q.digit)
        .unroll(s.r);
    by_quarter(s.integer_output, s.lane, lanes);
    Var of_quarter("of_quarter"), within("within");
    Stage products = s.integer_output.update();
    products.split(s.lane, of_quarter, within, lanes / kQuarters)
        .reorder(
            {v.over_key_quads.x, within, of_quarter, s.panel, q.digit, s.r, v.over_key_quads.y, v.over_key_quads.z})
        .atomic()
        .vectorize(v.over_key_quads.x)
        .vectorize(within)
        .vectorize(of_quarter)
        .unroll(s.panel)
        .unroll(q.digit)
        .unroll(s.r);
    products.specialize(s.one_value_scale);
    const LoopLevel of_quad(s.integer_output, v.over_key_quads.y);
    v.value_bytes.compute_at(of_quad)
        .bound(s.d, 0, kLineBytes)
        .bound(s.side, 0, kSides)
        .bound_extent(s.part, 1)
        .reorder_storage(s.d, s.side, s.part)
        .reorder(s.d, s.side, s.part)
        .vectorize(s.d)
        .unroll(s.side);
    schedule_interleaved_bytes(s, {v.value_halves, s.value_words, v.half, v.word, s.d}, of_quad, lanes);
    schedule_weight_digits(s, tile, lanes);
}

}  // namespace hattn::schedules::simd
