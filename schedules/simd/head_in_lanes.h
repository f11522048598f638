// Decode: the head dimension in the vector lanes. For few rows, K and V are read once, as vectors, at the speed
// of memory.
#pragma once

#include "generators/attention_stages.h"
#include "generators/unfused.h"
#include "schedules/tile.h"

namespace hattn::schedules::simd {

void schedule_head_in_lanes(generators::AttentionStages &stages, const Tile &tile, int lanes);
void schedule_scores_head_in_lanes(generators::UnfusedScores &stages, const Tile &tile, int lanes);
void schedule_values_head_in_lanes(generators::UnfusedValues &stages, const Tile &tile, int lanes);

// What rows of decode have. Its softmax: decode_softmax.h.
void schedule_decode_rows(generators::ScoreStages &stages, const Tile &tile, int lanes);

// What the value loop asks for ahead, if anything, with each key of a pass.
void schedule_next(generators::AttentionStages &stages, Halide::Func values, const Halide::RVar &key,
                   const Halide::RVar &granule);

// Weights times values, head elements in the lanes: `vectors` of them and so many rows at a time, key after key.
// `stages` are AttentionStages or UnfusedValues, `rows` the loop over blocks of rows of their state.
template<typename Stages>
void schedule_head_products(Stages &stages, const Halide::Var &rows, int block_rows, int vectors, int lanes) {
    stages.chunk_output.compute_at(stages.state, rows)
        .bound_extent(stages.r, block_rows)
        .bound_extent(stages.d, lanes * vectors)
        .reorder_storage(stages.d, stages.r, stages.c)
        .reorder(stages.d, stages.r, stages.c)
        .vectorize(stages.d, lanes)
        .unroll(stages.d)
        .unroll(stages.r);
    stages.chunk_output.update()
        .reorder(stages.d, stages.r, stages.over_keys.x, stages.over_keys.y)
        .vectorize(stages.d, lanes)
        .unroll(stages.d)
        .unroll(stages.r);
}

}  // namespace hattn::schedules::simd
