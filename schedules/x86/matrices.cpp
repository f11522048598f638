#include "matrices.h"

#include "schedules/simd/row_stages.h"

namespace hattn::schedules::x86 {

using namespace Halide;
using generators::AttentionStages;

namespace {

constexpr int kSide = 16;  // rows and columns of sums

// A product in memory, cut into matrices that registers hold while they are summed up.
struct Product {
    Func sums;        // in registers
    Func stored;      // in memory
    Var column, row;  // of sums; columns lie side by side in memory
    RDom over;        // (element of a block, block)
};

// What rows of so many words are stored in: 16 rows of a matrix that are multiples of 512 bytes apart would lie in few sets
// of the first-level cache.
int spread_rows(int elements) {
    constexpr int kFewSets = 128;
    return elements % kFewSets == 0 ? elements + kSide : elements;
}
constexpr int kSpreadPanels = 9;  // of 64 bytes: the same for rows of head elements

// Halide 21 knows one such register of sums at a time, that is stored by a Func of its own.
void schedule_product(Product p, bool in_registers) {
    Var column("matrix_column"), row("matrix_row");
    p.stored.tile(p.column, p.row, column, row, kSide, kSide, TailStrategy::GuardWithIf)
        .reorder(column, row, p.row, p.column)
        .vectorize(column);
    p.sums.compute_at(p.stored, p.row).vectorize(p.column);
    p.sums.update().reorder(p.over.x, p.column, p.row, p.over.y);
    if (in_registers) {
        p.stored.vectorize(row);
        p.sums.store_in(MemoryType::AMXTile).vectorize(p.row);
        p.sums.update().atomic().vectorize(p.over.x).vectorize(p.column).vectorize(p.row);
    } else {
        p.sums.update().reorder(p.column, p.over.x, p.row, p.over.y).vectorize(p.column);
    }
}

void schedule_scores(AttentionStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes, bool in_registers) {
    simd::schedule_hook_tiles(s, chunk_loop, tile, lanes);
    s.logits.compute_at(chunk_loop).bound_extent(s.r, tile.rows).bound_extent(s.k, tile.keys).bound_extent(s.c, 1);
    s.logits.update().reorder(s.r, s.k, s.over_limits).vectorize(s.r, lanes).unroll(s.r);
    s.key_rows.compute_at(chunk_loop)
        .vectorize(s.d, 2 * lanes, TailStrategy::RoundUp)
        .partition(s.d, Partition::Always);
    // Without hooks logits are what the product is, which is stored as that.
    Func scores = s.logits;
    if (!s.scales_exponents()) {
        scores = s.dot.in();
        scores.compute_at(chunk_loop).bound_extent(s.r, tile.rows).bound_extent(s.k, tile.keys).bound_extent(s.c, 1);
        s.logits.vectorize(s.r, lanes).unroll(s.r);
    }
    scores.align_storage(s.r, spread_rows(tile.rows));
    schedule_product({s.dot, scores, s.r, s.k, s.over_dim_blocks}, in_registers);
}

// Weights are transposed for the second product, whose sums have head elements side by side, as the state then does.
void schedule_state(AttentionStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes, bool in_registers) {
    // As turned_stores.h wants it.
    Var key("k_of_words"), rows("r_block");
    s.weight_rows.compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound_extent(s.k, tile.keys)
        .split(s.k, s.k, key, generators::kMatrixDepth)
        .split(s.r, rows, s.r, lanes)
        .reorder(s.r, key, s.k, rows)
        .vectorize(s.r);
    Func values = s.panel_output.in();
    values.compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound(s.lane, 0, kSide)
        .bound_extent(s.c, 1)
        .reorder_storage(s.lane, s.panel, s.r, s.c)
        .align_storage(s.panel, kSpreadPanels)
        .reorder(s.lane, s.r, s.panel, s.c);
    s.panel_output.bound_extent(s.lane, kSide).reorder_storage(s.lane, s.r, s.panel, s.c).reorder(s.lane, s.r, s.panel, s.c);
    schedule_product({s.panel_output, values, s.lane, s.r, s.over_key_blocks}, in_registers);

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

// Sides of pairs one after the other, as turned_stores.h wants them.
void schedule_queries(AttentionStages &s, const Tile &tile, int lanes) {
    Var rows("r_block"), pass("pass"), pairs("pair_block");
    s.query_pairs.compute_root()
        .align_storage(s.r, spread_rows(tile.rows))
        .bound(s.side, 0, 2)
        .bound(s.r, 0, tile.rows)
        .split(s.r, rows, s.r, lanes)
        .split(s.pair, pairs, s.pair, lanes)
        .fuse(s.side, s.r, pass)
        .reorder(s.pair, pass, pairs, rows)
        .vectorize(s.pair)
        .partition(pairs, Partition::Always);
}

void schedule(AttentionStages &s, const Tile &tile, int lanes, bool in_registers) {
    const LoopLevel chunk_loop(s.state, s.over_chunks.x);
    simd::schedule_rows(s, tile, lanes);
    schedule_queries(s, tile, lanes);
    schedule_state(s, chunk_loop, tile, lanes, in_registers);
    schedule_scores(s, chunk_loop, tile, lanes, in_registers);
    simd::schedule_softmax(s, tile, lanes);
    s.value_pairs.compute_at(chunk_loop)
        .bound(s.side, 0, 2)
        .bound(s.lane, 0, generators::kMatrixColumns)
        .split(s.pair, s.panel, s.pair, tile.keys / 2, TailStrategy::RoundUp)
        .reorder(s.side, s.lane, s.panel, s.pair)
        .vectorize(s.lane)
        .unroll(s.side)
        .partition(s.panel, Partition::Always);
}

}  // namespace

void schedule_matrices(AttentionStages &stages, const Tile &tile, int lanes) {
    schedule(stages, tile, lanes, true);
}

void schedule_matrices_in_loops(AttentionStages &stages, const Tile &tile, int lanes) {
    schedule(stages, tile, lanes, false);
}

}  // namespace hattn::schedules::x86
