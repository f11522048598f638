#pragma once

#include "generators/merge.h"

namespace hattn::schedules::gpu {

struct Tile;

// One work group per unit, which is one row of at most tile.head elements: tile.slices threads for each of them share
// the states.
void schedule_merge(generators::MergeStages &stages, const Tile &tile);

}  // namespace hattn::schedules::gpu
