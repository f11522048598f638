#pragma once

#include "generators/merge.h"

namespace hattn::schedules::gpu {

struct Tile;

// One work group per unit, one thread per element of the head, one row after the other. At most tile.head elements and
// tile.rows rows.
void schedule_merge(generators::MergeStages &stages, const Tile &tile);

}  // namespace hattn::schedules::gpu
