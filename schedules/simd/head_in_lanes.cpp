#include "head_in_lanes.h"

#include <type_traits>

#include "decode_softmax.h"
#include "general_ends.h"
#include "integer_bytes.h"
#include "integer_digits.h"
#include "integer_pairs.h"
#include "keys_by_row.h"
#include "pairs_in_rows.h"
#include "quads.h"
#include "schedules/stored.h"

namespace hattn::schedules::simd {

using namespace Halide;
using generators::AttentionStages;
using generators::ScoreStages;
using generators::UnfusedScores;
using generators::UnfusedValues;

namespace {

// With more rows than these LLVM no longer sees that all share what brings an element from int4 into float32: it is
// done once per row, in 177 instructions for 16 multiply-adds in place of 58.
constexpr int kFewRows = 4;

}  // namespace

void schedule_decode_rows(ScoreStages &s, const Tile &tile, int lanes) {
    for (Func f : {s.row, s.head, s.position, s.first, s.last}) {
        f.compute_root().bound(s.r, 0, tile.rows);
    }
    for (Func f : s.per_row) {
        f.compute_root().bound(s.r, 0, tile.rows);
    }
    s.query_tile.compute_root()
        .bound(s.r, 0, tile.rows)
        .reorder(s.d, s.r)
        .reorder_storage(s.d, s.r)
        .vectorize(s.d, lanes, TailStrategy::RoundUp);
    if (s.in_digits || s.in_byte_matrices) {
        schedule_digit_queries(s, tile, lanes);
    } else if (s.in_bytes) {
        schedule_byte_queries(s, tile, lanes);
    } else if (s.in_integers) {
        schedule_integer_queries(s, tile, lanes);
    }
    if (s.in_rows) {
        schedule_query_rows(s, tile);
    }
    if (s.in_quads) {
        schedule_query_quads(s, tile, lanes);
    }
    if (s.query_steps.defined() && !s.in_integers) {
        s.query_steps.compute_root()
            .bound(s.r, 0, tile.rows)
            .reorder(s.d, s.r)
            .reorder_storage(s.d, s.r)
            .vectorize(s.d, lanes);
    }
}

namespace {

// `block`: the loop over blocks of the state's elements.
void schedule_value_steps(AttentionStages &s, const Var &block, const Tile &tile, int lanes) {
    if (!s.values_in_steps) {
        return;
    }
    s.state.bound(s.d, 0, s.value_positions);
    s.chunk_output.update().specialize(s.one_value_scale);
    s.scaled_weights.compute_at(s.chunk_output, s.over_keys.x).vectorize(s.lane, lanes).unroll(s.r);
    if (s.value_words.defined()) {
        unroll_parts(s, block, generators::step_elements(s.all_type) / (lanes * tile.value_unroll));
        s.value_words.compute_at(s.chunk_output, s.over_keys.x).vectorize(s.lane, lanes);
    }
}

// Of weights and values, each key by itself.
template<typename Stages>
void schedule_products(Stages &s, const Var &rows, const Tile &tile, int lanes) {
    schedule_head_products(s, rows, tile.row_vectors, tile.value_unroll, lanes);
    if (s.any_storage) {
        specialize_for_storage(s.chunk_output.update(), s.value_type);
    }
    if ((s.any_storage || s.whole_heads) && tile.row_vectors > kFewRows) {
        // Said to be the same for all.
        s.chunk_value.compute_at(s.chunk_output, s.over_keys.x)
            .bound_extent(s.d, lanes * tile.value_unroll)
            .vectorize(s.d, lanes)
            .unroll(s.d);
        if (s.any_storage) {
            specialize_for_storage(s.chunk_value, s.value_type);
        }
    }
}

// Whole heads are whole blocks, but where these are wide.
template<typename Stages>
bool has_whole_blocks(const Stages &s, int elements) {
    if constexpr (std::is_same_v<Stages, AttentionStages>) {
        return s.whole_heads && (s.in_rows ? elements <= kWholeHead : !s.by_row || s.in_digits);
    }
    return s.whole_heads;
}

// So many elements at once, or both halves of a vector of words side by side.
template<typename Stages>
void schedule_output(Stages &s, int elements, int lanes) {
    s.output.reorder(s.d, s.r);
    if constexpr (std::is_same_v<Stages, AttentionStages>) {
        if (s.in_words) {
            Var block("d_block"), half("d_half");
            s.output.split(s.d, block, s.d, 2 * lanes, TailStrategy::GuardWithIf)
                .split(s.d, s.d, half, 2)
                .vectorize(half)
                .vectorize(s.d);
            return;
        }
    }
    s.output.vectorize(s.d, elements, TailStrategy::GuardWithIf);
}

// Each vector of head elements of every row is updated from registers.
template<typename Stages>
void schedule_state(Stages &s, const Tile &tile, int lanes) {
    Var block("d_block"), inner("d_inner"), rows("r_block");
    s.state.compute_root()
        .bound(s.r, 0, tile.rows)
        .reorder_storage(s.d, s.r)
        .reorder(s.d, s.r)
        .vectorize(s.d, lanes)
        .unroll(s.r);
    s.state.update()
        .split(s.d, block, inner, lanes * tile.value_unroll, TailStrategy::GuardWithIf)
        .split(s.r, rows, s.r, tile.row_vectors)
        .reorder(inner, s.r, rows, block, s.over_chunks.x)
        .partition(block, has_whole_blocks(s, lanes * tile.value_unroll) ? Partition::Auto : Partition::Always)
        .vectorize(inner, lanes)
        .unroll(inner)
        .unroll(s.r);
    int elements = lanes;  // of the output, at once
    if constexpr (std::is_same_v<Stages, AttentionStages>) {
        if (s.present_keys) {
            // Else the loop over keys would have an end apart in all chunks but the first and last.
            s.state.update().partition(s.over_chunks.x, Partition::Never);
        }
        if (s.values_in_digits) {
            schedule_digit_values(s, block, rows, tile, lanes);
            schedule_next(s, s.integer_output, s.value_digits.over_key_quads.y, s.value_digits.over_key_quads.z);
        } else if (s.in_bytes) {
            schedule_byte_values(s, block, rows, tile, lanes);
            schedule_next(s, s.integer_output, s.value_digits.over_key_quads.y, s.value_digits.over_key_quads.z);
        } else if (s.values_in_integers) {
            elements = output_elements(s, lanes);
            schedule_integer_values(s, block, rows, tile, lanes);
            schedule_next(s, s.integer_output, s.over_key_pairs.y, s.over_key_pairs.z);
        } else if (s.in_rows) {
            schedule_row_values(s, rows, tile, lanes);
            schedule_next(s, s.chunk_output, s.over_key_pairs.y, s.over_key_pairs.z);
        } else {
            if (s.in_words) {
                s.state.bound(s.d, 0, s.value_positions);
            }
            schedule_products(s, rows, tile, lanes);
            for (const Expr &narrow : s.narrow_values) {
                s.chunk_output.update().specialize(narrow);
            }
            schedule_next(s, s.chunk_output, s.over_keys.x, s.over_keys.y);
            schedule_value_steps(s, block, tile, lanes);
        }
    } else {
        // Else the first and the last chunk would have code of their own.
        s.state.update().partition(s.over_chunks.x, Partition::Never);
        schedule_products(s, rows, tile, lanes);
    }
    schedule_output(s, elements, lanes);
    s.normaliser.compute_root().bound(s.r, 0, tile.rows);
}

}  // namespace

namespace {

// Partial dot products along the lanes, of key_unroll keys of every row, then one horizontal sum each.
void schedule_lane_sums(ScoreStages &s, Func lane_sums, const Var &partial, const RVar &vector, const RVar &line,
                        int lanes) {
    lane_sums.reorder_storage(partial, s.r, s.k, s.c).vectorize(partial, lanes).unroll(s.r).unroll(s.k);
    Stage sums = lane_sums.update();
    if (s.by_row) {
        // Of usual heads queries stay in registers.
        if (s.steps_of_line > 1) {
            RVar half("d_half");
            sums.split(line, line, half, s.steps_of_line).unroll(half);
            sums.reorder(partial, s.r, vector, half, line, s.k);
        }
        sums.reorder(partial, s.r, vector, line, s.k).unroll(vector).vectorize(partial, lanes).unroll(s.r).unroll(s.k);
        for (const Expr &usual : s.usual_heads) {
            sums.specialize(usual).unroll(line);
        }
        return;
    }
    if (s.in_steps) {
        sums.reorder(partial, s.r, s.k, line);
    } else {
        sums.reorder(partial, s.r, s.k, vector, line).unroll(vector);
        if (s.in_words && lanes == generators::kLineFloats) {
            RVar half("d_half");
            sums.split(line, line, half, 2).reorder(partial, s.r, s.k, vector, half, line).unroll(half);
        }
    }
    sums.partition(line, s.whole_heads ? Partition::Auto : Partition::Always)
        .vectorize(partial, lanes)
        .unroll(s.r)
        .unroll(s.k);
    if (s.any_storage) {
        // Few rows share a key: elements are brought into float32 in registers.
        specialize_for_storage(sums, s.key_type);
    } else if (s.in_steps) {
        sums.specialize(s.one_key_scale);
    }
}

// What is asked for and brought into registers with a line, or a step.
void schedule_line(ScoreStages &s, const Func &lane_sums, const RVar &line, const Var &block, int lanes) {
    if (!s.by_row && !s.by_stride) {
        s.fetch_lines.compute_root();
    }
    s.fetch_starts.compute_at(s.dot, block);
    s.fetched_line.compute_at(lane_sums, line).unroll(s.k);
    if (s.in_words && !s.by_row && lanes == generators::kLineFloats) {
        s.fetched_line.bound_extent(s.line, 2).unroll(s.line);
    }
    if (s.by_row) {
        s.fetched_line.update().unroll(s.k);
        schedule_asks(s).compute_at(lane_sums, s.k);
    }
    if (s.key_words.defined()) {
        s.key_words.compute_at(lane_sums, line).vectorize(s.lane, lanes).unroll(s.k);
    }
}

void schedule_dot(ScoreStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes) {
    if (s.in_digits) {
        schedule_digit_scores(s, chunk_loop, tile, lanes);
        return;
    }
    if (s.in_rows) {
        schedule_row_scores(s, chunk_loop, tile);
        return;
    }
    if (s.in_quads) {
        schedule_quad_scores(s, chunk_loop, tile, lanes);
        return;
    }
    const bool by_lanes = s.in_steps || s.in_integers;
    RVar vector("d_vector"), lane(by_lanes ? s.over_lanes.x : RVar("d_lane"));
    Var partial(by_lanes ? s.lane : Var("lane")), block(s.in_integers ? "k_block" : kKeyBlockLoop), inner("k_inner"),
        rows("r_block");
    bound_keys(s.dot, s, tile)
        .compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound_extent(s.c, 1)
        .reorder_storage(s.k, s.r, s.c)
        .reorder(s.k, s.r)
        .vectorize(s.k, lanes)
        .unroll(s.r);
    Func lane_sums = s.lane_sums;
    if (!by_lanes) {
        s.dot.update().split(s.over_lines.x, vector, lane, lanes);
        lane_sums = s.dot.update().rfactor(lane, partial);
    }
    Stage sums = s.dot.update();
    sums.split(s.k, block, inner, tile.key_unroll, s.present_keys ? TailStrategy::RoundUp : TailStrategy::Auto)
        .split(s.r, rows, s.r, tile.row_vectors)
        // With clamps for the last keys of all in a loop of their own; over any storage loops are many as it is.
        .partition(block, s.any_storage ? Partition::Never : Partition::Auto)
        .unroll(s.r);
    sums.reorder(lane, s.r, inner, rows, block).atomic().vectorize(lane).unroll(inner);
    if (s.in_integers) {
        sums.specialize(s.one_key_scale);
        s.in_bytes ? schedule_byte_sums(s, block, rows, lanes) : schedule_integer_sums(s, block, rows, lanes);
        return;
    }
    const RVar line = s.in_steps ? s.over_steps.x : s.over_lines.y;
    lane_sums.compute_at(s.dot, rows);
    schedule_lane_sums(s, lane_sums, partial, vector, line, lanes);
    schedule_line(s, lane_sums, line, block, lanes);
}

void schedule_operands(ScoreStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes) {
    for (generators::HookTile &operand : s.hook_tiles) {
        schedule_chunk(operand.func, s, chunk_loop, tile, lanes);
        operand.func.specialize(operand.dense);
    }
}

}  // namespace

void schedule_next(AttentionStages &s, Func values, const RVar &key, const RVar &granule) {
    if (!s.asked_next.defined()) {
        return;
    }
    if (s.granule_lines.defined()) {
        for (Func table : {s.granule_lines, s.next_granule, s.next_lines}) {
            table.compute_root();
        }
    }
    s.next_start.compute_at(values, granule).bound_extent(s.turn, 1);
    s.asked_next.compute_at(values, key).bound_extent(s.turn, 1);
    const bool in_pairs = s.in_rows || (s.values_in_integers && s.by_row);
    const int keys = s.values_in_digits ? generators::kSides - generators::kValuesWithScores : in_pairs ? 2 : 1;
    s.asked_next.bound_extent(s.slot, keys).unroll(s.slot);
}

void schedule_head_in_lanes(AttentionStages &stages, const Tile &tile, int lanes) {
    // One chunk at a time: what the sliding window of chunk_max amounts to, which Halide cannot prove.
    const LoopLevel chunk_loop(stages.state, stages.over_chunks.x);
    schedule_decode_rows(stages, tile, lanes);
    schedule_state(stages, tile, lanes);
    schedule_decode_statistics(stages, tile);
    schedule_dot(stages, chunk_loop, tile, lanes);
    schedule_operands(stages, chunk_loop, tile, lanes);
    schedule_decode_softmax(stages, chunk_loop, tile, lanes);
}

// All scores stay in cache until the row's maximum is known, keys side by side.
void schedule_scores_head_in_lanes(UnfusedScores &s, const Tile &tile, int lanes) {
    const LoopLevel chunk_loop(s.logits, s.c);
    schedule_decode_rows(s, tile, lanes);
    schedule_dot(s, chunk_loop, tile, lanes);
    schedule_operands(s, chunk_loop, tile, lanes);
    for (Func f : {s.logits, s.exponentials}) {
        f.compute_root()
            .bound(s.r, 0, tile.rows)
            .bound(s.k, 0, tile.keys)
            .reorder_storage(s.k, s.c, s.r)
            .reorder(s.k, s.r, s.c)
            .vectorize(s.k, lanes);
    }
    for (Func f : {s.row_max, s.row_sum}) {
        f.compute_root().bound(s.r, 0, tile.rows);
        f.update().reorder(s.over_keys.x, s.over_keys.y, s.r).atomic().vectorize(s.over_keys.x, lanes);
    }
    Var chunk("chunk"), key("key");
    s.weights.split(s.j, chunk, key, tile.keys, TailStrategy::GuardWithIf)
        .vectorize(key, lanes, TailStrategy::GuardWithIf);
}

void schedule_values_head_in_lanes(UnfusedValues &s, const Tile &tile, int lanes) {
    schedule_state(s, tile, lanes);
    s.row_weights.compute_at(s.state, s.over_chunks.x)
        .bound_extent(s.r, tile.rows)
        .bound_extent(s.k, tile.keys)
        .reorder_storage(s.k, s.r, s.c)
        .reorder(s.k, s.r, s.c)
        .vectorize(s.k, lanes);
    if (s.fetches_chunk) {
        s.fetched.compute_at(s.state, s.over_chunks.x);
    }
    schedule_key_seen(s, tile, lanes);
}

}  // namespace hattn::schedules::simd
