// The schedule of attention on tensor cores.
#pragma once

#include "early_tiles.h"
#include "generators/attention_stages.h"
#include "schedules/gpu/tile.h"

namespace hattn::schedules::cuda {

// One block of threads per tile, a warp for every 16 or 32 rows and part of the columns: of keys where it computes
// scores, of elements of the head where it computes the output. Tiles have kFragmentSlices slices for each part and two
// or four rows of a thread. Queries, and per chunk keys and values, are in shared memory; scores, weights and the state
// in registers, as fragments of the instruction's matrices, but for weights where there are several parts. Needs stages
// in fragments, and the passes of early_tiles.h, warp_matrix.h, exchanged_blocks.h and, after it,
// gpu/thread_registers.h.
void schedule_matrix_attention(generators::AttentionStages &stages, const gpu::Tile &tile);

// Which of its stages bring rows early, and into tiles whose blocks change places. Values are not early where they
// depend on which keys are seen.
Tiles early_tiles(const generators::AttentionStages &stages, const gpu::Tile &tile);

}  // namespace hattn::schedules::cuda
