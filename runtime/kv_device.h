// Writing rows of a KV cache whose storage is in memory of a device.
#pragma once

#include <span>

#include "kv_cache.h"
#include "rope.h"
#include "row_counts.h"

namespace hattn {

// Rows of one page, or sequence, to another one.
void copy_on_device(const hattn_kv_cache &cache, std::span<const PageCopy> copies);

// rope may be null. Both put their work into the cache's queue; rows of the host have been read on return. They throw
// StatusError.
void append_on_device(const hattn_kv_cache &cache, const hattn_tensor &k, const hattn_tensor &v, const RowCounts &added,
                      const RowTurner *rope);

}  // namespace hattn
