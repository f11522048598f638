// Prefill, and decode with several rows, by an instruction for small matrices: AMX. Both products are computed in matrices of 16 x 16 sums, which
// matrix_tiles.h makes instructions of and stand-ins leave as the loops they are; all between them has query rows in
// the vector lanes.
#pragma once

#include "generators/attention_stages.h"
#include "schedules/tile.h"

namespace hattn::schedules::x86 {

void schedule_matrices(generators::AttentionStages &stages, const Tile &tile, int lanes);

}  // namespace hattn::schedules::x86
