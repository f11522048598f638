// Prefill: query rows in the vector lanes. K and V are read as scalar broadcasts in their own layout, and the
// softmax needs no horizontal operation.
#pragma once

#include "generators/attention_stages.h"
#include "generators/unfused.h"
#include "schedules/tile.h"

namespace hattn::schedules::simd {

void schedule_rows_in_lanes(generators::AttentionStages &stages, const Tile &tile, int lanes);
void schedule_scores_rows_in_lanes(generators::UnfusedScores &stages, const Tile &tile, int lanes);

}  // namespace hattn::schedules::simd
