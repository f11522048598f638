// Scores of few rows with four elements of a head beside each other, and as many rows as the lanes have room for: one
// load of four elements of a key, which goes to all rows, serves as many products as a vector has lanes, and no sums go
// across a vector but of these four (multiply_sides() in generators/side_stages.cpp).
#pragma once

#include "generators/attention_stages.h"
#include "schedules/tile.h"

namespace hattn::schedules::simd {

// The loops over a head's lines, and through one.
inline constexpr const char *kHeadLine = "line", *kHeadStep = "step";
// Sums of all rows and of a block's keys, which have two elements or four at a time, in registers.
void schedule_side_sums(generators::ScoreStages &s, const Halide::LoopLevel &level, int lanes);

// Of the query, once per call.
void schedule_query_quads(generators::ScoreStages &s, const Tile &tile, int lanes);

// The dot products of a chunk, key_unroll keys at a time.
void schedule_quad_scores(generators::ScoreStages &s, const Halide::LoopLevel &chunk_loop, const Tile &tile, int lanes);

}  // namespace hattn::schedules::simd
