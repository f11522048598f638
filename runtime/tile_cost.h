// What tiles of flash take, as far as that is known without timing them.
#pragma once

#include "selection.h"

namespace hattn {

// A tile with so many rows, of all heads, over a chunk of keys: in fifths of what a row takes.
int64_t cost_of_tile(const KernelInfo &kernel, int64_t filled_rows);

// All rows of a kv head, over all chunks that tiles see where they multiply matrices, else over one.
int64_t cost_of_tiles(const Choice &choice, const Problem &problem, int64_t query_length, int64_t kv_length);

}  // namespace hattn
