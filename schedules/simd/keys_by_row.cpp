#include "keys_by_row.h"

namespace hattn::schedules::simd {

using namespace Halide;
using generators::ScoreStages;

Func bound_keys(Func f, const ScoreStages &s, const Tile &tile) {
    return s.present_keys ? f.bound_storage(s.k, tile.keys).align_bounds(s.k, generators::kGranuleKeys)
                    : f.bound_extent(s.k, tile.keys);
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
