// Prefill on ARM: schedules/simd/rows_in_lanes.h, with the elements of a value row loaded as one vector: multiply-adds
// take their scalar operand from any lane of it.
#pragma once

#include "generators/attention_stages.h"
#include "schedules/tile.h"

namespace hattn::schedules::arm {

void schedule_rows_in_lanes(generators::AttentionStages &stages, const Tile &tile, int lanes);

}  // namespace hattn::schedules::arm
