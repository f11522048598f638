// Schedules that are correct on any target Halide compiles for, and the parent of all others: a target that does not
// override a stage runs these.
#pragma once

#include "generators/attention_stages.h"
#include "generators/merge.h"
#include "generators/scores.h"
#include "generators/unfused.h"
#include "schedules/tile.h"

namespace hattn::schedules::generic {

void schedule_attention(generators::AttentionStages &stages, const Tile &tile, int lanes);
void schedule_unfused_scores(generators::UnfusedScores &stages, const Tile &tile, int lanes);
void schedule_unfused_values(generators::UnfusedValues &stages, const Tile &tile, int lanes);
void schedule_scores(generators::ScoreOutput &stages, const Tile &tile, int lanes);
void schedule_merge(generators::MergeStages &stages, const Tile &tile, int lanes);

}  // namespace hattn::schedules::generic
