// Prefill by an instruction for small matrices: AMX, by Halide's MemoryType::AMXTile. Both products are computed in
// matrices of 16 x 16 sums; all between them has query rows in the vector lanes.
#pragma once

#include "generators/attention_stages.h"
#include "schedules/tile.h"

namespace hattn::schedules::x86 {

void schedule_matrices(generators::AttentionStages &stages, const Tile &tile, int lanes);

// The same matrices in the same order, each by loops: for CPUs without the instruction.
void schedule_matrices_in_loops(generators::AttentionStages &stages, const Tile &tile, int lanes);

}  // namespace hattn::schedules::x86
