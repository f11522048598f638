#include "rows_in_lanes.h"

#include <algorithm>

#include "general_ends.h"
#include "head_in_lanes.h"
#include "quads.h"
#include "row_stages.h"
#include "schedules/stored.h"

namespace hattn::schedules::simd {

using namespace Halide;
using generators::AttentionStages;
using generators::ScoreStages;
using generators::UnfusedScores;

namespace {

// An update that adds products to a block of accumulators, which registers hold: rows in lanes, `across` unrolled.
// With pairs a lane takes two products at a time.
void schedule_products(Stage products, const RDom *pairs, const Var &r, const Var &across, std::vector<VarOrRVar> loops,
                       int lanes) {
    loops.insert(loops.begin(), {r, across});
    if (pairs) {
        loops.insert(loops.begin(), pairs->x);
    }
    products.reorder(loops).vectorize(r, lanes);
    if (pairs) {
        products.atomic().vectorize(pairs->x);
    }
    products.unroll(r).unroll(across);
}

// Once for all rows, in the loop over `pass`es. Of heads that are whole passes without a loop over vectors.
void schedule_stored_values(AttentionStages &s, const Var &pass, int lanes, Partition ends) {
    Var whole("d_whole"), vector("d_vector");
    s.chunk_value.compute_at(s.state, pass).hoist_storage_root().bound_storage(s.d, kPassElements);
    Stage of_whole = s.chunk_value.specialize(s.output.output_buffer().dim(0).extent() % kPassElements == 0);
    of_whole.split(s.d, whole, s.d, kPassElements, TailStrategy::RoundUp)
        .split(s.d, vector, s.d, lanes)
        .reorder(s.d, vector, s.slot, s.granule, whole)
        .vectorize(s.d)
        .unroll(vector)
        .unroll(s.slot, 4);
    specialize_for_storage(of_whole, s.value_type);
    s.chunk_value.vectorize(s.d, lanes, TailStrategy::RoundUp).partition(s.d, ends);
    specialize_for_storage(s.chunk_value, s.value_type);
}

// The chunk loop: the state stays in cache, a block of it is updated from registers.
void schedule_state(AttentionStages &s, const Tile &tile, int lanes) {
    Var pass(kPassLoop), block("d_block"), inner("d_inner"), rows("r_block");
    const int register_rows = lanes * tile.row_vectors;
    s.state.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes).unroll(s.r);
    s.state.update()
        .split(s.d, block, inner, tile.value_unroll, TailStrategy::GuardWithIf)
        .split(s.r, rows, s.r, register_rows)
        .reorder(s.r, inner, rows, block, s.over_chunks.x)
        .partition(s.over_chunks.x, Partition::Never)
        .unroll(inner)
        .vectorize(s.r, lanes)
        .unroll(s.r);
    if (s.any_storage) {
        s.state.update()
            .split(block, pass, block, kPassElements / tile.value_unroll, TailStrategy::GuardWithIf)
            .partition(pass, Partition::Always);
        schedule_stored_values(s, pass, lanes, Partition::Always);
    } else {
        s.state.update().partition(block, Partition::Always);
    }
    if (s.unseen_values.defined()) {
        s.unseen_values.compute_at(s.chunk_output, s.in_pairs ? s.over_key_pairs.z : s.over_keys.y);
    }
    s.chunk_output.compute_at(s.state, rows)
        .bound_extent(s.d, tile.value_unroll)
        .vectorize(s.r, lanes)
        .unroll(s.r)
        .unroll(s.d);
    if (s.in_pairs) {
        schedule_products(s.chunk_output.update(), &s.over_key_pairs, s.r, s.d,
                          {s.over_key_pairs.y, s.over_key_pairs.z}, lanes);
        s.chunk_output.update().partition(s.over_key_pairs.z, Partition::Never);
    } else {
        schedule_products(s.chunk_output.update(), nullptr, s.r, s.d, {s.over_keys.x, s.over_keys.y}, lanes);
        if (!s.hides_keys && !s.any_storage) {
            // Values are read in place: all granules but the first and the last without the clamps of nearest_value.
            s.chunk_output.update().partition(s.over_keys.y, Partition::Always);
        }
    }

    schedule_turned_output(s, tile, lanes);
    s.normaliser.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes);
    schedule_statistics(s, tile, lanes);
}

// The same with the head in the lanes, of a single vector of rows, which takes a load for each product. Narrow blocks,
// lest heads that are no multiples of 64 elements compute much behind their ends.
void schedule_state_of_one_vector(AttentionStages &s, const Tile &tile, int lanes) {
    constexpr int kRows = 8, kElements = 32;
    static_assert(kElements == kPassElements);
    const int vectors = kElements / lanes;
    Var block("d_block"), inner("d_inner"), rows("r_block");
    s.state.compute_root().bound(s.r, 0, tile.rows).reorder_storage(s.d, s.r).reorder(s.d, s.r).vectorize(s.d, lanes);
    s.state.update()
        .split(s.d, block, inner, kElements, TailStrategy::RoundUp)
        .split(s.r, rows, s.r, kRows)
        .reorder(inner, s.r, rows, block, s.over_chunks.x)
        .partition(block, s.any_storage ? Partition::Auto : Partition::Always)
        .partition(s.over_chunks.x, Partition::Never)
        .vectorize(inner, lanes)
        .unroll(inner)
        .unroll(s.r);
    schedule_head_products(s, rows, kRows, vectors, lanes);
    schedule_next(s, s.chunk_output, s.over_keys.x, s.over_keys.y);
    if (s.any_storage) {
        schedule_stored_values(s, block, lanes, Partition::Auto);  // the block's ends are this one's
    }
    if (!s.hides_keys && !s.any_storage) {
        s.chunk_output.update().partition(s.over_keys.y, Partition::Always);
    }
    s.output.reorder(s.d, s.r).vectorize(s.d, lanes, TailStrategy::GuardWithIf);
    if (s.any_storage) {
        s.output_scale.compute_root();  // whose stride is not known
    }
    s.normaliser.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes);
    schedule_statistics(s, tile, lanes);
}

// Elements of the head that the score loop takes in one pass. A pass of one has 22 instructions on AVX2 for 12
// multiply-adds, which a core that another thread shares cannot always issue as fast as it multiplies. With 24, of
// which 32 registers hold the sums, it has 39, and LLVM loads ahead in longer passes until sums are on the stack. Of
// 16 sums two elements have one line asked for.
int dot_unroll(const ScoreStages &s, const Tile &tile) {
    constexpr int kFewSums = 12, kSomeSums = 16;
    const int sums = tile.row_vectors * tile.key_unroll;
    return sums <= kFewSums ? 4 : sums <= kSomeSums && s.by_stride ? 2 : 1;
}

// Products of one element of the head after the other.
Func schedule_elements(ScoreStages &s, const Tile &tile, int lanes) {
    RVar line(kHeadLine), in_line("in_line"), step(kHeadStep), element("element");
    s.dot.update()
        .split(s.over_dim.x, line, in_line, generators::kLineFloats)
        .split(in_line, step, element, dot_unroll(s, tile));
    schedule_products(s.dot.update(), nullptr, s.r, s.k, {element, step, line}, lanes);
    s.dot.update().unroll(element).partition(step, Partition::Never).partition(line, Partition::Always);
    return s.dot;
}

// Of the lines that are asked for while those of a block of keys are multiplied, those of one of so many steps.
void schedule_asked_lines(ScoreStages &s, const LoopLevel &step, const Tile &tile, int steps) {
    s.fetched_line.compute_at(step).bound_extent(s.line, std::max(tile.key_unroll / steps, 1)).unroll(s.line);
}

// And of two at a time: half as many rows in a vector, all of which share what is loaded of a key.
Func schedule_sides(ScoreStages &s, const LoopLevel &rows, const Tile &tile, int lanes) {
    s.query_pairs.compute_root()
        .bound(s.side, 0, 2)
        .bound(s.r, 0, tile.rows)
        .reorder(s.side, s.r, s.pair)
        .vectorize(s.r, lanes)
        .unroll(s.side);
    schedule_side_sums(s, rows, lanes);
    return s.side_sums;
}

// The score block: row_vectors x key_unroll accumulators, one broadcast per key and element of the head.
void schedule_logits(ScoreStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes) {
    Var block("k_block"), inner("k_inner"), rows("r_block");
    schedule_hook_tiles(s, chunk_loop, tile.rows, lanes);
    s.logits.split(s.k, block, inner, tile.key_unroll, TailStrategy::RoundUp)
        .split(s.r, rows, s.r, lanes * tile.row_vectors)
        .reorder(s.r, inner, rows, block)
        .unroll(inner)
        .vectorize(s.r, lanes)
        .unroll(s.r);
    if (s.over_limits.defined()) {
        s.logits.update().reorder(s.r, s.k, s.over_limits).vectorize(s.r, lanes).unroll(s.r);
    }
    schedule_hook_asks(s, LoopLevel(s.logits, block));
    if (s.unseen_scores.defined()) {
        s.unseen_scores.compute_at(s.logits, block);
        s.logits.partition(block, Partition::Never);
    }
    s.dot.compute_at(s.logits, rows).vectorize(s.r, lanes).unroll(s.r).unroll(s.k);
    if (s.key_starts.defined()) {
        Var granule("granule");
        s.key_starts.compute_at(chunk_loop)
            .bound_extent(s.c, 1)
            .bound_storage(s.k, s.placed_keys)
            .split(s.k, granule, s.k, generators::kGranuleKeys, TailStrategy::RoundUp)
            .vectorize(s.k);
    }
    if (s.in_pairs) {
        schedule_products(s.dot.update(), &s.over_pairs, s.r, s.k, {s.over_pairs.y, s.over_pairs.z}, lanes);
        s.dot.update().unroll(s.over_pairs.y);  // keys' addresses are computed once for all of them
        if (s.whole_groups.defined()) {
            s.dot.update().specialize(s.whole_groups);
            s.dot.update().specialize(!s.whole_groups);
        }
        s.key_rows.compute_at(chunk_loop)
            .vectorize(s.d, 2 * lanes, TailStrategy::RoundUp)
            .partition(s.d, Partition::Always);
        if (s.fetched_line.defined()) {
            s.fetch_starts.compute_at(s.logits, block);
            schedule_asked_lines(s, LoopLevel(s.dot, s.over_pairs.z), tile,
                                 generators::kLineFloats / generators::kPairGroup);
        }
    } else {
        const Func sums =
            s.sides > 0 ? schedule_sides(s, LoopLevel(s.logits, rows), tile, lanes) : schedule_elements(s, tile, lanes);
        const RVar line(kHeadLine);
        if (s.fetched_line.defined()) {
            s.fetch_starts.compute_at(s.logits, block);
            if (s.by_stride) {
                schedule_asked_lines(s, LoopLevel(sums, RVar(kHeadStep)), tile,
                                     generators::kLineFloats / (s.sides > 0 ? s.sides : dot_unroll(s, tile)));
            } else {
                s.fetch_lines.compute_root();
                s.fetched_line.compute_at(sums, line).unroll(s.k);
            }
            if (s.over_dense.defined()) {
                s.fetched_line.update(0).reorder(s.k, s.over_dense).unroll(s.k);
                s.fetched_line.update(1).reorder(s.k, s.over_table).unroll(s.k);
            }
        }
        if (s.asked_rows.defined()) {
            s.row_places.compute_root().bound(s.r, 0, tile.rows);
            s.asked_range.compute_at(s.logits, block);
            s.asked_rows.compute_at(sums, line);
        }
    }
    if (s.any_storage) {
        // Once for all rows, a block at a time, which stays in the first-level cache. Not beside the score block, whose
        // accumulators take all registers.
        schedule_stored(s.key_rows, s.d, s.key_type, LoopLevel(s.logits, block), lanes);
        s.key_rows.hoist_storage_root();
    }
}

}  // namespace

void schedule_rows_in_lanes(AttentionStages &stages, const Tile &tile, int lanes) {
    const LoopLevel chunk_loop(stages.state, stages.over_chunks.x);
    schedule_rows(stages, tile, lanes);
    if (stages.sides > 0) {
        schedule_state_of_one_vector(stages, tile, lanes);
    } else {
        schedule_state(stages, tile, lanes);
    }
    // One chunk at a time: what the sliding window of chunk_max amounts to, which Halide cannot prove.
    stages.logits.compute_at(chunk_loop).bound_extent(stages.r, tile.rows).bound_extent(stages.c, 1);
    schedule_logits(stages, chunk_loop, tile, lanes);
    schedule_softmax(stages, tile, lanes);
}

// All scores stay in cache until the rows' maxima are known; they are transposed when they are stored.
void schedule_scores_rows_in_lanes(UnfusedScores &s, const Tile &tile, int lanes) {
    schedule_rows(s, tile, lanes);
    s.logits.compute_root().bound(s.r, 0, tile.rows).bound(s.k, 0, tile.keys);
    schedule_logits(s, LoopLevel(s.logits, s.c), tile, lanes);
    s.exponentials.compute_root().bound(s.r, 0, tile.rows).bound(s.k, 0, tile.keys).vectorize(s.r, lanes);
    for (Func f : {s.row_max, s.row_sum}) {
        f.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes);
        f.update().reorder(s.r, s.over_keys.x, s.over_keys.y).vectorize(s.r, lanes).unroll(s.r);
    }
    Var chunk("chunk"), key("key");
    s.weights.split(s.j, chunk, key, tile.keys, TailStrategy::GuardWithIf)
        .reorder(key, s.r, chunk)
        .vectorize(key, lanes, TailStrategy::GuardWithIf);
}

}  // namespace hattn::schedules::simd
