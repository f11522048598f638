// Prefill by an instruction for small matrices, AMX, of bfloat16 numbers or of numbers that are sums of some.
#pragma once

#include "generators/attention_stages.h"
#include "schedules/tile.h"

namespace hattn::schedules::x86 {

// Band by band: so many rows of a tile as registers of sums have, from scores to the state. Scores of a band and terms
// of its weights stay in the first-level cache; keys and values of a chunk are brought into terms once for all bands.
// Rows are in the lanes throughout, and outputs are turned at the end.
void schedule_matrix_bands(generators::AttentionStages &stages, const Tile &tile, int lanes);

}  // namespace hattn::schedules::x86
