#include "matrices.h"

#include "matrix_bands.h"
#include "matrix_sums.h"
#include "schedules/simd/row_stages.h"

namespace hattn::schedules::x86 {

using namespace Halide;
using generators::AttentionStages;

namespace {

// Registers of sums that are computed together: along the rows of a tile, which has two of them or one, and along head
// elements.
int joined_rows(const AttentionStages &s) {
    return s.joined_rows / kSide;
}

int joined_panels(const AttentionStages &s) {
    return kMostJoined / joined_rows(s);
}

// What rows of so many words are stored in: 16 rows of a matrix that are multiples of 512 bytes apart would lie in few
// sets of the first-level cache.
int spread_rows(int elements) {
    constexpr int kFewSets = 128;
    return elements % kFewSets == 0 ? elements + kSide : elements;
}
// Of panels in pairs: columns of values of one pair would lie in one set.
int spread_pairs(int pairs) {
    return pairs + 1;
}
constexpr int kSpreadPanels = 9;  // of 64 bytes: the same for rows of head elements

void schedule_scores(AttentionStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes) {
    simd::schedule_hook_tiles(s, chunk_loop, tile.rows, lanes);
    simd::schedule_hook_asks(s, chunk_loop);
    Func scores = schedule_score_matrices(s, chunk_loop, chunk_loop, tile.rows, tile, lanes);
    scores.align_storage(s.r, spread_rows(tile.rows));
    s.key_rows.compute_at(chunk_loop);
    Stage copies = s.over_copies.defined() ? s.key_rows.update() : Stage(s.key_rows);
    copies.vectorize(s.d, 2 * lanes, TailStrategy::RoundUp).partition(s.d, Partition::Always);
}

// Weights are transposed for the second product, whose sums have head elements side by side, as the state then does.
void schedule_state(AttentionStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes) {
    // As turned_stores.h wants it.
    Var key("k_of_words"), rows("r_block");
    s.weight_rows.compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound_extent(s.k, tile.keys)
        .split(s.k, s.k, key, generators::kMatrixDepth)
        .bound(s.term, 0, s.bfloat16_terms)
        .split(s.r, rows, s.r, lanes)
        .reorder(s.r, key, s.term, s.k, rows)
        .vectorize(s.r)
        .unroll(s.term);
    Func values = s.panel_output.in();
    Var row("matrix_row"), joined("joined_rows"), panels("joined_panels");
    values.compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound(s.lane, 0, kSide)
        .bound_extent(s.c, 1)
        .reorder_storage(s.lane, s.panel, s.r, s.c)
        .align_storage(s.panel, kSpreadPanels)
        .split(s.r, s.r, row, kSide)
        .split(s.r, s.r, joined, joined_rows(s))
        .split(s.panel, s.panel, panels, joined_panels(s), TailStrategy::RoundUp)
        .reorder(s.lane, row, panels, joined, s.r, s.panel, s.c)
        .vectorize(s.lane);
    schedule_panel_sums(s, s.panel_output, values, panels, s.r, s.over_key_blocks);

    s.state.compute_root()
        .bound(s.r, 0, tile.rows)
        .align_bounds(s.d, kSide)
        .reorder_storage(s.d, s.r)
        .reorder(s.d, s.r)
        .vectorize(s.d, lanes);
    s.state.update()
        .reorder(s.d, s.r, s.over_chunks.x)
        .partition(s.over_chunks.x, Partition::Never)
        .vectorize(s.d, lanes);
    s.output.reorder(s.d, s.r).vectorize(s.d, lanes, TailStrategy::GuardWithIf);
    s.normaliser.compute_root().bound(s.r, 0, tile.rows).vectorize(s.r, lanes);
    simd::schedule_statistics(s, tile, lanes);
}

void schedule_queries(AttentionStages &s, const Tile &tile, int lanes) {
    simd::schedule_query_pairs(s, tile.rows, lanes, {s.term});
    s.query_pairs.align_storage(s.r, spread_rows(tile.rows)).bound(s.term, 0, s.bfloat16_terms).unroll(s.term);
}

}  // namespace

void schedule_matrices(AttentionStages &s, const Tile &tile, int lanes) {
    if (s.in_bands) {
        schedule_matrix_bands(s, tile, lanes);
        return;
    }
    const LoopLevel chunk_loop(s.state, s.over_chunks.x);
    simd::schedule_rows(s, tile, lanes);
    schedule_queries(s, tile, lanes);
    schedule_state(s, chunk_loop, tile, lanes);
    schedule_scores(s, chunk_loop, tile, lanes);
    simd::schedule_softmax(s, tile, lanes);
    s.value_pairs.compute_at(chunk_loop)
        .bound(s.side, 0, 2)
        .bound(s.lane, 0, generators::kMatrixColumns)
        .bound(s.term, 0, s.bfloat16_terms)
        .bound_extent(s.pair, tile.keys / 2)
        .align_storage(s.pair, spread_pairs(tile.keys / 2))
        .reorder(s.side, s.lane, s.term, s.panel, s.pair)
        .vectorize(s.lane)
        .unroll(s.side)
        .unroll(s.term)
        .partition(s.panel, Partition::Always);
}

}  // namespace hattn::schedules::x86
