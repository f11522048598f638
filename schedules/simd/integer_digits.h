// Decode over lines of int8 and int4 by products of bytes, four of which are summed up at once: what differs from other
// schedules with the head along the lanes.
#pragma once

#include "generators/attention_stages.h"
#include "schedules/tile.h"

namespace hattn::schedules::simd {

void schedule_digit_queries(generators::ScoreStages &stages, const Tile &tile, int lanes);

void schedule_digit_scores(generators::ScoreStages &stages, const Halide::LoopLevel &chunk_loop, const Tile &tile,
                           int lanes);

// Of sums of both digits: `products` are (side, part of a step).
void schedule_step_digits(generators::ScoreStages &stages, const Halide::RDom &products, int lanes);

// Lines of four keys whose bytes change places: those of two keys, a half of each quarter at a time, and then of all
// four, a word. `lane`: of words.
struct InterleavedBytes {
    Halide::Func halves, words;
    Halide::Var half, word, lane;
};
void schedule_interleaved_bytes(const generators::AttentionStages &stages, InterleavedBytes bytes,
                                const Halide::LoopLevel &of_line, int lanes);

// `block`: the loop of the state over blocks of its elements; `rows`: likewise.
void schedule_digit_values(generators::AttentionStages &stages, const Halide::Var &block, const Halide::Var &rows,
                           const Tile &tile, int lanes);

}  // namespace hattn::schedules::simd
