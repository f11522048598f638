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
    s.logits.compute_at(chunk_loop).bound_extent(s.r, tile.rows).bound_extent(s.c, 1).vectorize(s.r, lanes).unroll(s.r);
    s.key_rows.compute_at(chunk_loop)
        .vectorize(s.d, 2 * lanes, TailStrategy::RoundUp)
        .partition(s.d, Partition::Always);
    Func scores = s.dot.in();
    scores.compute_at(chunk_loop).bound_extent(s.r, tile.rows).bound_extent(s.k, tile.keys).bound_extent(s.c, 1);
    schedule_product({s.dot, scores, s.r, s.k, s.over_dim_blocks}, in_registers);
}

// Weights are transposed for the second product, whose sums have head elements side by side, as the state then does.
void schedule_state(AttentionStages &s, const LoopLevel &chunk_loop, const Tile &tile, int lanes, bool in_registers) {
    Var block("d_block"), inner("d_inner");
    s.weight_rows.compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound_extent(s.k, tile.keys)
        .vectorize(s.r, lanes);
    Func values = s.chunk_output.in();
    values.compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound_extent(s.c, 1)
        .align_bounds(s.d, kSide)
        .reorder_storage(s.d, s.r, s.c)
        .reorder(s.d, s.r, s.c);
    s.chunk_output.reorder_storage(s.d, s.r, s.c).reorder(s.d, s.r, s.c);
    schedule_product({s.chunk_output, values, s.d, s.r, s.over_key_blocks}, in_registers);

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

void schedule(AttentionStages &s, const Tile &tile, int lanes, bool in_registers) {
    const LoopLevel chunk_loop(s.state, s.over_chunks.x);
    simd::schedule_rows(s, tile, lanes);
    schedule_state(s, chunk_loop, tile, lanes, in_registers);
    schedule_scores(s, chunk_loop, tile, lanes, in_registers);
    simd::schedule_softmax(s, tile, lanes);
    s.value_pairs.compute_at(s.chunk_output.in(), s.d);  // a column of matrices at a time, side by side in memory
}

}  // namespace

void schedule_matrices(AttentionStages &stages, const Tile &tile, int lanes) {
    schedule(stages, tile, lanes, true);
}

void schedule_matrices_in_loops(AttentionStages &stages, const Tile &tile, int lanes) {
    schedule(stages, tile, lanes, false);
}

}  // namespace hattn::schedules::x86
