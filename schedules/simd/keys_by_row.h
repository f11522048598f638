// Keys of decode with the head in the lanes: which of a chunk are computed, and what asks for them by row.
#pragma once

#include "generators/attention_stages.h"
#include "schedules/tile.h"

namespace hattn::schedules::simd {

// The keys that a stage of a chunk computes: with present_keys whole granules of those that are there, else all.
Halide::Func bound_keys(Halide::Func f, const generators::ScoreStages &stages, const Tile &tile);

// The dot products of a chunk, key_unroll keys at a time, of stages whose sums are of four keys side by side; gives the
// loop over these blocks.
Halide::Var schedule_dot_by_fours(const generators::ScoreStages &stages, const Halide::LoopLevel &chunk_loop,
                                  const Tile &tile);

// By row, what asks for the lines of each key, in loops that are unrolled for usual heads.
Halide::Func schedule_asks(generators::ScoreStages &stages);

}  // namespace hattn::schedules::simd
