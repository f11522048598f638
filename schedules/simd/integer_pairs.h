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

// Of blocks of keys and rows, what sums of pairs and of bytes share: what asks for lines, and sums by scales.
void schedule_scaled_sums(generators::ScoreStages &stages, const Halide::Var &block, const Halide::Var &rows,
                          int lanes);

// Blocks of the state's elements that are parts of a step, or of a line, are unrolled: which one they are decides how
// bytes are taken apart.
void unroll_parts(generators::AttentionStages &stages, const Halide::Var &block, int parts);

// Scales of values and units of weights, of a chunk.
void schedule_weight_units(generators::AttentionStages &stages, const Tile &tile, int lanes);

// Of the output, in one vector: of int8 those whose sums lie side by side.
int output_elements(const generators::AttentionStages &stages, int lanes);

}  // namespace hattn::schedules::simd
