// Decode on x86: the head dimension in the vector lanes. For few rows, K and V are read once, as vectors, at the speed
// of memory.
#pragma once

#include "generators/attention_stages.h"
#include "schedules/tile.h"

namespace hattn::schedules::x86 {

void schedule_head_in_lanes(generators::AttentionStages &stages, const Tile &tile, int lanes);

}  // namespace hattn::schedules::x86
