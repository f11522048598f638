// Decode by products of bytes that have signs: what schedule_head_in_lanes() has in place of its own.
#pragma once

#include "generators/attention_stages.h"
#include "schedules/tile.h"

namespace hattn::schedules::simd {

void schedule_byte_queries(generators::ScoreStages &stages, const Tile &tile, int lanes);

// Of products with keys, `block`: the loop over blocks of keys, and `rows`: over blocks of rows.
void schedule_byte_sums(generators::ScoreStages &stages, const Halide::Var &block, const Halide::Var &rows, int lanes);

// Of products with values, `block`: the loop over blocks of the state's elements, and `rows`: over blocks of rows.
void schedule_byte_values(generators::AttentionStages &stages, const Halide::Var &block, const Halide::Var &rows,
                          const Tile &tile, int lanes);

}  // namespace hattn::schedules::simd
