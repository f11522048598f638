// Stages of attention with query rows in the vector lanes, beside the two products.
#pragma once

#include <vector>

#include "generators/attention_stages.h"
#include "schedules/tile.h"

namespace hattn::schedules::simd {

// Per-row operands and the transposed query tile, once per call.
void schedule_rows(generators::ScoreStages &s, const Tile &tile, int lanes);

// Pairs of queries, of so many rows, once per call: sides one after the other, as turned_stores.h wants them. `outer`
// are dimensions that these have besides.
void schedule_query_pairs(generators::ScoreStages &s, int rows, int lanes, const std::vector<Halide::Var> &outer = {});

// Operands of hooks, for the keys of a chunk, for so many rows at a time.
void schedule_hook_tiles(generators::ScoreStages &s, const Halide::LoopLevel &row_loop, int rows, int lanes);

// What is asked for of them, a part each time: to ask for many lines at once gains little, see decision 0103.
void schedule_hook_asks(generators::ScoreStages &s, const Halide::LoopLevel &of_part);

// Sum and maximum share the chunk loop of the state.
void schedule_statistics(generators::AttentionStages &s, const Tile &tile, int lanes);

// Of a state with rows in the lanes, by the vector, see turned_stores.h.
void schedule_turned_output(generators::AttentionStages &s, const Tile &tile, int lanes);

// From logits to weights, and the values that are multiplied with them, but for those of any storage.
void schedule_softmax(generators::AttentionStages &s, const Tile &tile, int lanes);

}  // namespace hattn::schedules::simd
