// Schedule of rows that are appended to a cache.
#pragma once

#include "generators/append.h"
#include "schedules/gpu/tile.h"

namespace hattn::schedules::gpu {

void schedule_append(generators::AppendStages &stages, const Tile &tile);

}  // namespace hattn::schedules::gpu
