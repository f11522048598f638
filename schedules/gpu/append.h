// Rows of a cache on devices.
#pragma once

#include "generators/append.h"
#include "generators/convert.h"
#include "tile.h"

namespace hattn::schedules::gpu {

// A work group has tile.rows rows and tile.slices threads for each.
void schedule_append(generators::AppendStages &stages, const Tile &tile);
void schedule_block_scales(generators::BlockScales &stages, const Tile &tile);
void schedule_quantize(generators::Quantize &stages, const Tile &tile);

}  // namespace hattn::schedules::gpu
