// Decode that goes through keys by row (StageOptions::fetch_by_row), in chunks of which it computes what there is.
#pragma once

#include "generators/attention_stages.h"
#include "schedules/tile.h"

namespace hattn::schedules::simd {

// The keys that a stage of a chunk computes: by row whole granules of those that are there, which lets chunks be as
// long as splits are; else all of a chunk.
Halide::Func bound_keys(Halide::Func f, const generators::ScoreStages &stages, const Tile &tile);

// By row, what asks for the lines of each key, in loops that are unrolled for usual heads.
Halide::Func schedule_asks(generators::ScoreStages &stages);

}  // namespace hattn::schedules::simd
