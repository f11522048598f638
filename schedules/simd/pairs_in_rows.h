// Pairs of bfloat16 numbers along rows, with the head in the lanes: of keys those that lie side by side, of values
// those of two keys, which are interleaved for all rows of a tile.
#pragma once

#include "generators/attention_stages.h"
#include "schedules/tile.h"

namespace hattn::schedules::simd {

void schedule_query_rows(generators::ScoreStages &stages, const Tile &tile);
void schedule_row_scores(generators::ScoreStages &stages, const Halide::LoopLevel &chunk_loop, const Tile &tile);
// `rows`: the loop of the state over blocks of rows.
void schedule_row_values(generators::AttentionStages &stages, const Halide::Var &rows, const Tile &tile, int lanes);

}  // namespace hattn::schedules::simd
