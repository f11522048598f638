// Schedules of kernels that compute scores and outputs one by one: naive, unfused and score outputs.
#pragma once

#include "generators/attention_stages.h"
#include "generators/scores.h"
#include "generators/unfused.h"
#include "schedules/gpu/tile.h"

namespace hattn::schedules::gpu {

void schedule_naive(generators::AttentionStages &stages, const Tile &tile);
void schedule_unfused_scores(generators::UnfusedScores &stages, const Tile &tile);
void schedule_unfused_values(generators::UnfusedValues &stages, const Tile &tile);
void schedule_score_output(generators::ScoreOutput &stages, const Tile &tile);

}  // namespace hattn::schedules::gpu
