#pragma once

#include "generators/attention_stages.h"
#include "schedules/gpu/tile.h"

namespace hattn::schedules::gpu {

// For few rows, of all of which each thread has elements: stages with key_groups. Keys and values go from memory into
// registers, in which a thread has all that it has of a chunk at once.
void schedule_decode(generators::AttentionStages &stages, const Tile &tile);

}  // namespace hattn::schedules::gpu
