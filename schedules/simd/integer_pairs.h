// Decode over int8 or int4 by products of pairs of integers: what differs from other schedules with the head along the
// lanes.
#pragma once

#include "generators/attention_stages.h"
#include "schedules/tile.h"

namespace hattn::schedules::simd {

void schedule_integer_queries(generators::ScoreStages &stages, const Tile &tile, int lanes);

// `block`: the loop of `dot` over blocks of keys; `rows`: the one within it, over blocks of rows.
void schedule_integer_sums(generators::ScoreStages &stages, const Halide::Var &block, const Halide::Var &rows,
                           int lanes);

// `block`: the loop of the state over blocks of its elements; `rows`: likewise.
void schedule_integer_values(generators::AttentionStages &stages, const Halide::Var &block, const Halide::Var &rows,
                             const Tile &tile, int lanes);

// Scales of values and units of weights, of a chunk.
void schedule_weight_units(generators::AttentionStages &stages, const Tile &tile, int lanes);

// Of the output, in one vector: of int8 those whose sums lie side by side.
int output_elements(const generators::AttentionStages &stages, int lanes);

}  // namespace hattn::schedules::simd
