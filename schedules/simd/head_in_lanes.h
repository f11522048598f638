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

}  // namespace hattn::schedules::simd
