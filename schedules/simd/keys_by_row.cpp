#include "keys_by_row.h"

namespace hattn::schedules::simd {

using namespace Halide;
using generators::ScoreStages;

Func bound_keys(Func f, const ScoreStages &s, const Tile &tile) {
    return s.present_keys ? f.bound_storage(s.k, tile.keys).align_bounds(s.k, generators::kGranuleKeys)
                    : f.bound_extent(s.k, tile.keys);
}

Var schedule_dot_by_fours(const ScoreStages &s, const LoopLevel &chunk_loop, const Tile &tile) {
    Var block("k_block"), four("k_four"), inner("k_inner");
    bound_keys(s.dot, s, tile)
        .compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound_extent(s.c, 1)
        .reorder_storage(s.k, s.r, s.c)
        .split(s.k, block, four, tile.key_unroll)
        .split(four, four, inner, generators::kKeysAtOnce)
        .reorder(inner, s.r, four, block)
        .vectorize(inner)
        .unroll(s.r)
        .unroll(four);
    return block;
}

Func schedule_asks(ScoreStages &s) {
    s.asked.unroll(s.k);
    s.asked.update().unroll(s.k);
    for (const Expr &usual : s.usual_heads) {
        s.asked.update().specialize(usual).unroll(s.over_asks.x);
    }
    return s.asked;
}

}  // namespace hattn::schedules::simd
