#include "matrix_bands.h"

#include "matrix_sums.h"
#include "overlapped_bands.h"
#include "schedules/simd/row_stages.h"
#include "schedules/stored.h"

namespace hattn::schedules::x86 {

using namespace Halide;
using generators::AttentionStages;

namespace {

// Keys of a chunk, once for all bands. Bfloat16 ones are copied too: where they lie, rows may cross cache lines or
// share few sets of the first-level cache.
void schedule_band_keys(AttentionStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes) {
    if (s.bfloat16_terms == 1) {
        constexpr int kCopiedKeys = 4;  // at a time
        Var copied("copied_keys");
        s.key_rows.compute_at(chunk_loop)
            .bound_extent(s.k, tile.keys)
            .split(s.k, s.k, copied, kCopiedKeys)
            .reorder(copied, s.d, s.k)
            .unroll(copied)
            .vectorize(s.d, 2 * lanes, TailStrategy::RoundUp)
            .partition(s.d, Partition::Always);
        return;
    }
    s.key_terms.compute_at(chunk_loop)
        .bound(s.term, 0, s.bfloat16_terms)
        .vectorize(s.d, 2 * lanes, TailStrategy::RoundUp)
        .reorder(s.term, s.d, s.k)
        .unroll(s.term)
        .partition(s.d, s.any_storage ? Partition::Auto : Partition::Always);
    if (s.any_storage) {
        schedule_stored(s.key_rows, s.d, s.key_type, LoopLevel(s.key_terms, s.k), lanes);
    }
}

// Values likewise, turned on their way as turned_stores.h does.
void schedule_band_values(AttentionStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes) {
    Var key("k_of_words"), blocks("d_blocks"), both("k_and_d_blocks");
    s.value_rows.compute_at(chunk_loop)
        .bound(s.term, 0, s.bfloat16_terms)
        .bound_extent(s.k, tile.keys)
        .align_storage(s.k, tile.keys + generators::kMatrixDepth)
        .split(s.k, s.k, key, generators::kMatrixDepth)
        .split(s.d, blocks, s.d, lanes, TailStrategy::RoundUp)
        .vectorize(s.d);
    if (s.any_storage) {
        s.value_rows.reorder(s.d, key, s.term, blocks, s.k).unroll(s.term);
        schedule_stored(s.chunk_value, s.d, s.value_type, LoopLevel(s.value_rows, s.k), lanes);
    } else {
        s.value_starts.compute_at(chunk_loop).bound_extent(s.k, tile.keys).bound_extent(s.c, 1);
        s.value_rows.fuse(blocks, s.k, both)
            .reorder(s.d, key, s.term, both)
            .unroll(s.term)
            .partition(both, Partition::Never);
    }
}

void schedule_band_queries(AttentionStages &s, int lanes) {
    simd::schedule_query_pairs(s, s.joined_rows, lanes, {s.term, s.band});
    s.query_pairs.bound(s.band, 0, s.filled_bands).bound(s.term, 0, s.bfloat16_terms).unroll(s.term);
}

void schedule_band_softmax(AttentionStages &s, const LoopLevel &band_loop, const Tile &tile, int lanes) {
    s.statistics_before.compute_root().bound(s.r, 0, tile.rows);
    for (Func f : {s.chunk_max, s.running_max, s.rescale, s.chunk_sum}) {
        f.compute_at(band_loop).bound_extent(s.r, s.joined_rows).vectorize(s.r, lanes).unroll(s.r);
    }
    s.chunk_max.update()
        .reorder(s.r, s.over_keys.x, s.over_keys.y)
        .vectorize(s.r, lanes)
        .unroll(s.r)
        .unroll(s.over_keys.x, 4);
    s.chunk_sum.update().reorder(s.r, s.over_key_pairs.x, s.over_key_pairs.y).vectorize(s.r, lanes).unroll(s.r);
    s.logits.bound_storage(s.k, tile.keys);
    // Weights of two keys stay in registers.
    Var rows("r_block");
    s.weight_pairs.compute_at(band_loop)
        .bound(s.side, 0, 2)
        .bound(s.term, 0, s.bfloat16_terms)
        .bound_extent(s.r, s.joined_rows)
        .bound_extent(s.pair, tile.keys / 2)
        .split(s.r, rows, s.r, lanes)
        .reorder(s.side, s.r, s.term, rows, s.pair)
        .vectorize(s.r)
        .unroll(s.side)
        .unroll(s.term)
        .unroll(rows);
    s.pair_sums.compute_at(band_loop)
        .bound_extent(s.r, s.joined_rows)
        .bound_extent(s.pair, tile.keys / 2)
        .split(s.r, rows, s.r, lanes)
        .reorder(s.r, rows, s.pair)
        .vectorize(s.r)
        .unroll(rows)
        .compute_with(s.weight_pairs, s.pair);
    s.asked_ahead.compute_at(s.weight_pairs, s.pair).store_in(MemoryType::Stack);
    simd::schedule_hook_asks(s, LoopLevel(s.weight_pairs, s.pair));
    s.weights.compute_at(s.weight_pairs, s.pair)
        .store_in(MemoryType::Stack)
        .bound_extent(s.r, s.joined_rows)
        .bound_extent(s.k, 2)
        .vectorize(s.r, lanes)
        .unroll(s.r)
        .unroll(s.k);
}

void schedule_band_state(AttentionStages &s, const LoopLevel &band_loop, const Var &bands, const Tile &tile,
                         int lanes) {
    Func sums = s.chunk_output.in();
    Var column("matrix_column"), row("matrix_row"), rows("joined_rows"), elements("joined_elements");
    sums.compute_at(band_loop)
        .bound_extent(s.r, s.joined_rows)
        .bound_extent(s.c, 1)
        .split(s.r, s.r, column, kSide)
        .split(s.d, s.d, row, kSide, TailStrategy::RoundUp)
        .split(s.r, s.r, rows, s.joined_rows / kSide)
        .split(s.d, s.d, elements, kJoinedKeys, TailStrategy::RoundUp)
        .reorder(column, row, rows, elements, s.r, s.d, s.c)
        .vectorize(column);
    schedule_sums(s.chunk_output, sums, rows, s.r, s.d, s.over_key_blocks);

    s.state.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes).unroll(s.r, 2);
    s.state.align_storage(s.r, tile.rows + kSide).align_bounds(s.d, kJoinedKeys * kSide);
    s.state.update()
        .split(s.r, bands, s.r, s.joined_rows)
        .reorder(s.r, s.d, bands, s.over_chunks.x)
        .partition(s.over_chunks.x, Partition::Never)
        .vectorize(s.r, lanes)
        .unroll(s.r);
    s.statistics.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes);
    s.statistics.update()
        .split(s.r, bands, s.r, s.joined_rows)
        .reorder(s.r, bands, s.over_chunks.x)
        .vectorize(s.r, lanes)
        .unroll(s.r)
        .compute_with(s.state.update(), bands);
    s.normaliser.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes);

    simd::schedule_turned_output(s, tile, lanes);
    if (s.not_finite.defined()) {
        s.not_finite.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes);
        s.not_finite.update().reorder(s.r, s.over_elements).vectorize(s.r, lanes);
    }
}

}  // namespace

void schedule_matrix_bands(AttentionStages &s, const Tile &tile, int lanes) {
    const Var bands(kBandLoop);
    const LoopLevel chunk_loop(s.state, s.over_chunks.x), band_loop(s.state, bands);
    simd::schedule_rows(s, tile, lanes);
    schedule_band_queries(s, lanes);
    schedule_band_state(s, band_loop, bands, tile, lanes);
    schedule_band_keys(s, chunk_loop, tile, lanes);
    schedule_band_values(s, chunk_loop, tile, lanes);
    simd::schedule_hook_tiles(s, band_loop, s.joined_rows, lanes);
    schedule_score_matrices(s, band_loop, chunk_loop, s.joined_rows, tile, lanes);
    schedule_band_softmax(s, band_loop, tile, lanes);
}

}  // namespace hattn::schedules::x86
