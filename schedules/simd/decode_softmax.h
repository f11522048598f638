// Decode with keys side by side: from scores to weights.
#pragma once

#include <type_traits>

#include "generators/attention_stages.h"
#include "keys_by_row.h"
#include "schedules/tile.h"

namespace hattn::schedules::simd {

// Scores of one chunk.
void schedule_chunk(Halide::Func scores, const generators::ScoreStages &stages, const Halide::LoopLevel &chunk_loop,
                    const Tile &tile, int lanes);

// Sums and maxima of all chunks, in the chunk loop of the state.
void schedule_decode_statistics(generators::AttentionStages &stages, const Tile &tile);

void schedule_decode_softmax(generators::AttentionStages &stages, const Halide::LoopLevel &chunk_loop, const Tile &tile,
                             int lanes);

// Of AttentionStages or UnfusedValues.
template<typename Stages>
void schedule_key_seen(Stages &s, const Tile &tile, int lanes) {
    if (s.hides_keys) {
        if constexpr (std::is_same_v<Stages, generators::AttentionStages>) {
            bound_keys(s.key_seen, s, tile);
        } else {
            s.key_seen.bound_extent(s.k, tile.keys);
        }
        s.key_seen.compute_at(s.state, s.over_chunks.x).vectorize(s.k, lanes);
        s.key_seen.update().reorder(s.k, s.over_rows).vectorize(s.k, lanes);
    }
}

}  // namespace hattn::schedules::simd
