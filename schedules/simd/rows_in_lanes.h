// Prefill: query rows in the vector lanes. K and V are read as scalar broadcasts in their own layout, and the
// softmax needs no horizontal operation.
#pragma once

#include "generators/attention_stages.h"
#include "generators/unfused.h"
#include "schedules/tile.h"

namespace hattn::schedules::simd {

// Elements of stored values that are brought into float32 at a time, of all keys of a chunk: a cache line of 16 bits,
// and no more than the first-level cache holds beside the chunk's weights. Blocks of values divide it.
inline constexpr int kPassElements = 32;

void schedule_rows_in_lanes(generators::AttentionStages &stages, const Tile &tile, int lanes);
void schedule_scores_rows_in_lanes(generators::UnfusedScores &stages, const Tile &tile, int lanes);

}  // namespace hattn::schedules::simd
