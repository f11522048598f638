// Schedules of attention for machines with work groups and shared memory.
#pragma once

#include "generators/attention_stages.h"
#include "schedules/gpu/tile.h"

namespace hattn::schedules::gpu {

// One work group per tile of rows. Queries, and per chunk keys, values and weights, are in shared memory; scores and
// the state of a row's slices in registers. Needs stages with slices and the passes of thread_registers.h, after it
// carried_state.h, and where there are aligned blocks of them aligned_blocks.h.
void schedule_attention(generators::AttentionStages &stages, const Tile &tile);

// StageOptions::slice_keys, which it takes: four where queries, keys and weights lie in columns, rows and keys of
// threads side by side, else one.
int slice_keys(const Tile &tile);

}  // namespace hattn::schedules::gpu
