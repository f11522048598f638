#include "byte_matrices.h"

#include "matrix_sums.h"
#include "schedules/simd/decode_softmax.h"
#include "schedules/simd/head_in_lanes.h"
#include "schedules/simd/integer_digits.h"
#include "schedules/simd/integer_pairs.h"
#include "schedules/simd/keys_by_row.h"

namespace hattn::schedules::x86 {

using namespace Halide;
using generators::AttentionStages;
using generators::kByteDepth;
using generators::kDigits;
using generators::kGranuleKeys;
using generators::kLineBytes;
using generators::kQuadsOfBlock;
using generators::kQuarterBytes;
using generators::kQuarters;
using generators::kQuarterWords;
using generators::kSides;

namespace {

void schedule_query_matrices(AttentionStages &s) {
    generators::ByteMatrixScores &m = s.byte_scores;
    m.query_matrices.compute_root()
        .bound(s.side, 0, kSides)
        .bound(m.column, 0, kSide)
        .bound(m.quad, 0, kQuadsOfBlock)
        .reorder_storage(s.side, m.column, m.quad, m.nibble, m.key_block, s.step)
        .reorder(s.side, m.column, m.quad, m.nibble, m.key_block, s.step)
        .vectorize(s.side)
        .vectorize(m.column);
    Var row("row_of_column"), digit("digit_of_column");
    m.query_matrices.update()
        .split(m.column, digit, row, generators::kDigitRows)
        .reorder({s.side, m.over_quads.x, row, digit, m.nibble, m.key_block, s.step})
        .vectorize(s.side)
        .unroll(m.over_quads.x);
}

// A granule at a time: what its scores take stays in the first-level cache.
void schedule_scores(AttentionStages &s, const LoopLevel &chunk_loop, const Tile &tile) {
    generators::ByteMatrixScores &m = s.byte_scores;
    Var granule("k_granule"), key("k_of_granule");
    simd::bound_keys(s.logits, s, tile)
        .compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound_extent(s.c, 1)
        .reorder_storage(s.k, s.r, s.c)
        .align_bounds(s.k, kByteDepth)
        .split(s.k, granule, key, kGranuleKeys)
        .reorder(s.r, key, granule)
        .vectorize(s.r)
        .partition(granule, Partition::Never);
    const LoopLevel of_granule(s.logits, granule);
    for (Func f : {s.digits.key_granule, s.fetch_starts, s.asked}) {
        f.compute_at(of_granule);
    }
    m.key_numbers.compute_at(of_granule).bound(s.d, 0, kLineBytes).reorder_storage(s.d, m.nibble, s.step, s.k);
    Stage numbers = m.over_copies.defined() ? m.key_numbers.update() : Stage(m.key_numbers);
    numbers.reorder(s.d, m.nibble, s.step, s.k).vectorize(s.d).unroll(m.nibble);
    m.key_block_scales.compute_at(of_granule);
    for (const Expr &condition : {s.one_key_scale, s.digits.dense_key_scales}) {
        m.key_block_scales.specialize(condition).vectorize(m.key_block, kQuarters, TailStrategy::GuardWithIf);
    }

    Func sums = m.byte_sums.in();
    sums.compute_at(of_granule)
        .bound(m.column, 0, kSide)
        .bound_extent(s.k, kGranuleKeys)
        .reorder_storage(m.column, m.key_block, s.step, s.k)
        .reorder(m.column, s.k, m.key_block, s.step)
        .vectorize(m.column);
    schedule_sums(m.byte_sums, sums, m.key_block, m.column, s.k, m.over_bytes);
    m.column_scores.compute_at(of_granule).bound(m.column, 0, kSide).vectorize(m.column);
    m.column_scores.update()
        .reorder(m.column, m.over_blocks.x, m.over_blocks.y, s.k)
        .vectorize(m.column)
        .unroll(m.over_blocks.x);
    if (s.one_head) {
        s.asked.update().unroll(s.over_asks.x);
        m.column_scores.update().unroll(m.over_blocks.y);
        return;
    }
    // Of usual heads what a granule has is of known sizes, and on the stack.
    const Expr is_usual = s.usual_heads.front();
    s.logits.specialize(is_usual);
    s.asked.update().specialize(is_usual).unroll(s.over_asks.x);
    m.column_scores.update().specialize(is_usual).unroll(m.over_blocks.y);
}

void schedule_weights(AttentionStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes) {
    simd::schedule_weight_units(s, tile, lanes);
    const Var quad = s.byte_scores.quad;
    s.byte_values.weight_words.compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound(s.digits.digit, 0, kDigits)
        .bound_storage(quad, tile.keys / kSides)
        .align_bounds(quad, kQuadsOfBlock)
        .align_storage(quad, tile.keys / kSides + kQuadsOfBlock)
        .reorder_storage(quad, s.r, s.digits.digit, s.block, s.c)
        .reorder(s.digits.digit, s.block, quad, s.r)
        .vectorize(quad, kQuadsOfBlock)
        .unroll(s.digits.digit);
    // Of usual heads a weight is loaded once.
    constexpr int kBlocks = generators::kUsualHead / generators::kScaleBlock;
    s.byte_values.weight_words.specialize(s.value_blocks == kBlocks).unroll(s.block, kBlocks);
}

// Lanes in so many numbers side by side, of so many places, and the same again.
void by_lanes(Func f, const AttentionStages &s, const std::vector<Var> &outer, int numbers, int places) {
    Var number("number"), place("place"), again("again");
    std::vector<VarOrRVar> loops = {s.side, number, place, again};
    loops.insert(loops.end(), outer.begin(), outer.end());
    f.split(s.lane, place, number, numbers)
        .split(place, again, place, places)
        .reorder(loops)
        .vectorize(s.side)
        .vectorize(number)
        .vectorize(place)
        .vectorize(again);
}

void schedule_values(AttentionStages &s, const LoopLevel &chunk_loop, const Tile &tile) {
    generators::ByteMatrixScores &m = s.byte_scores;
    generators::ByteMatrixValues &v = s.byte_values;
    const int panels_of_line = generators::storage_bits(s.all_type) == 4 ? generators::kNibbles * kQuarters : kQuarters;
    Var line("line_of_row"), panel("panel_of_line"), key_block("key_block_of_chunk");
    v.value_numbers.compute_at(chunk_loop)
        .bound(s.side, 0, kSides)
        .bound(s.lane, 0, kSide)
        .bound_storage(m.quad, tile.keys / kSides)
        .align_bounds(m.quad, kQuadsOfBlock)
        .align_storage(m.quad, tile.keys / kSides + 1)
        .reorder_storage(s.side, s.lane, m.quad, s.panel, s.c)
        .align_bounds(s.panel, panels_of_line)
        .split(s.panel, line, panel, panels_of_line, TailStrategy::RoundUp)
        .split(m.quad, key_block, m.quad, kQuadsOfBlock, TailStrategy::RoundUp);
    if (s.all_type == HATTN_INT4) {
        by_lanes(v.value_numbers, s, {panel, line, m.quad, key_block}, kQuarterWords, 2);
    } else {
        v.value_numbers.reorder(s.side, s.lane, panel, line, m.quad, key_block).vectorize(s.side).vectorize(s.lane);
    }
    v.value_numbers.unroll(panel).partition(m.quad, Partition::Never);
    const LoopLevel of_line(v.value_numbers, line);
    v.next_starts.compute_at(v.value_numbers, key_block);
    v.asked_line.compute_at(of_line).bound(s.side, 0, kSides).bound_extent(s.part, 1).unroll(s.side);
    v.value_lines.compute_at(of_line)
        .bound(s.d, 0, kLineBytes)
        .bound(s.side, 0, kSides)
        .bound_extent(s.part, 1)
        .reorder_storage(s.d, s.side)
        .vectorize(s.d)
        .unroll(s.side);
    simd::schedule_interleaved_bytes(s, {v.value_halves, v.value_words, v.half, v.word, s.lane}, of_line, kSide);
    v.half_lines.compute_at(of_line)
        .bound(s.side, 0, kSides)
        .bound(s.lane, 0, kSide)
        .bound(v.word_pair, 0, 2)
        .bound(v.half, 0, 2)
        .bound_extent(s.part, 1)
        .reorder_storage(s.side, s.lane, v.word_pair, v.half);
    by_lanes(v.half_lines, s, {v.word_pair, v.half}, kQuarterWords, 2);
    v.half_lines.unroll(v.word_pair).unroll(v.half);

    Func sums = v.panel_sums.in();
    Var panels("joined_panels");
    sums.compute_at(chunk_loop)
        .bound(m.column, 0, kSide)
        .bound(s.lane, 0, kSide)
        .bound_extent(s.c, 1)
        .reorder_storage(s.lane, m.column, s.panel, s.c)
        .align_bounds(s.panel, kMostJoined)
        .split(s.panel, s.panel, panels, kMostJoined, TailStrategy::RoundUp)
        .reorder(s.lane, m.column, panels, s.panel, s.c)
        .vectorize(s.lane);
    v.panel_sums.bound_extent(m.column, kSide);
    schedule_panel_sums(s, v.panel_sums, sums, panels, m.column, v.over_key_blocks);
}

void schedule_state(AttentionStages &s, const Tile &tile, int lanes) {
    s.state.compute_root()
        .bound(s.r, 0, tile.rows)
        .bound(s.d, 0, s.value_positions)
        .reorder_storage(s.d, s.r)
        .reorder(s.d, s.r)
        .vectorize(s.d, lanes);
    s.state.update()
        .reorder(s.d, s.r, s.over_chunks.x)
        .partition(s.over_chunks.x, Partition::Never)
        .vectorize(s.d, lanes);
    s.normaliser.compute_root().bound(s.r, 0, tile.rows);
    // As the sums of a block lie.
    Var block("d_block"), inner("d_inner");
    if (s.all_type == HATTN_INT4) {
        s.output.split(s.d, block, s.d, generators::kScaleBlock)
            .split(s.d, s.d, inner, generators::kNibbles)
            .reorder(inner, s.d, block, s.r)
            .vectorize(inner)
            .vectorize(s.d);
    } else {
        s.output.split(s.d, block, s.d, kQuarterBytes)
            .split(s.d, s.d, inner, kQuarterWords)
            .reorder(inner, s.d, block, s.r)
            .vectorize(inner)
            .vectorize(s.d);
    }
}

}  // namespace

void schedule_byte_matrices(AttentionStages &s, const Tile &tile, int lanes) {
    const LoopLevel chunk_loop(s.state, s.over_chunks.x);
    simd::schedule_decode_rows(s, tile, lanes);
    schedule_query_matrices(s);
    schedule_state(s, tile, lanes);
    simd::schedule_decode_statistics(s, tile);
    schedule_scores(s, chunk_loop, tile);
    simd::schedule_decode_softmax(s, chunk_loop, tile, lanes);
    schedule_weights(s, chunk_loop, tile, lanes);
    schedule_values(s, chunk_loop, tile);
}

}  // namespace hattn::schedules::x86
