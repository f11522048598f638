// Rows on their way into a KV cache: copied, or turned, rounded and quantised through float32.
#pragma once

#include <cstdint>

#include "kv_cache.h"
#include "kv_runs.h"
#include "rope.h"

namespace hattn {

// Writes one run of rows of `from` to a side of the cache. rope, which may be null, turns keys. Uses the memory of one
// worker.
void write_run(const hattn_kv_cache &cache, const CachedSide &side, const hattn_tensor &from, const Run &run,
               const RowTurner *rope, int32_t worker);

}  // namespace hattn
