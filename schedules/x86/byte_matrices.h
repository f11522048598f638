// Decode over int8 and int4 by AMX: both products are of small matrices of bytes, as matrix_tiles.h makes instructions
// of them; what is between has keys in the vector lanes, as with the head there.
#pragma once

#include "generators/attention_stages.h"
#include "schedules/tile.h"

namespace hattn::schedules::x86 {

// Tiles of generators::kDigitRows rows, and chunks of whole blocks of kByteDepth keys.
void schedule_byte_matrices(generators::AttentionStages &stages, const Tile &tile, int lanes);

}  // namespace hattn::schedules::x86
