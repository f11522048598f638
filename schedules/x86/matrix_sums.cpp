#include "matrix_sums.h"

namespace hattn::schedules::x86 {

using namespace Halide;

Func schedule_score_matrices(generators::AttentionStages &s, const LoopLevel &loop, const LoopLevel &chunk_loop,
                             int rows, const Tile &tile, int lanes) {
    s.logits.compute_at(loop).bound_extent(s.r, rows).bound_extent(s.k, tile.keys).bound_extent(s.c, 1);
    s.logits.update().reorder(s.r, s.k, s.over_limits).vectorize(s.r, lanes).unroll(s.r);
    // Without hooks logits are what the product is, which is stored as that.
    Func scores = s.logits;
    if (!s.scales_exponents()) {
        scores = s.dot.in();
        scores.compute_at(loop).bound_extent(s.r, rows).bound_extent(s.k, tile.keys).bound_extent(s.c, 1);
        s.logits.vectorize(s.r, lanes).unroll(s.r);
    }
    Var column("matrix_column"), row("matrix_row"), joined("joined_rows"), keys("joined_keys");
    scores.split(s.r, s.r, column, kSide)
        .split(s.k, s.k, row, kSide)
        .split(s.r, s.r, joined, s.joined_rows / kSide)
        .split(s.k, s.k, keys, kJoinedKeys)
        .reorder(column, row, joined, keys, s.r, s.k, s.c)
        .vectorize(column);
    for (Func f : {s.block_seen, s.seen_blocks}) {
        f.compute_at(chunk_loop).bound_extent(s.row_block, tile.rows / kSide);
    }
    if (s.unseen_blocks.defined()) {
        s.unseen_blocks.compute_at(chunk_loop).bound_extent(s.band, tile.rows / rows);
    }
    schedule_sums(s.dot, scores, joined, s.r, s.k, s.over_dim_blocks);
    return scores;
}

}  // namespace hattn::schedules::x86
