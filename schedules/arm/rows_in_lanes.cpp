#include "rows_in_lanes.h"

#include "schedules/simd/rows_in_lanes.h"

namespace hattn::schedules::arm {

void schedule_rows_in_lanes(generators::AttentionStages &s, const Tile &tile, int lanes) {
    simd::schedule_rows_in_lanes(s, tile, lanes);
    // Where hooks can hide keys, values are converted or pairs of them interleaved, their rows are copied and lie in
    // vectors already.
    if (!s.hides_keys && !s.any_storage && !s.in_pairs) {
        s.chunk_value.compute_at(s.chunk_output, s.over_keys.x)
            .bound_extent(s.d, tile.value_unroll)
            .vectorize(s.d, lanes)
            .unroll(s.d);
    }
}

}  // namespace hattn::schedules::arm
