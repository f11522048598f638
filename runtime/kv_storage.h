// Memory of a KV cache: layout of a side, its scales, where they are kept.
#pragma once

#include <cstdint>
#include <span>

#include "kv_cache.h"

namespace hattn {

// given: scales of the whole side, or without data; copied. name: theirs in messages. Throws StatusError.
CachedSide make_side(const hattn_kv_cache &cache, hattn_dtype dtype, int64_t dim, const hattn_tensor &given,
                     const char *name);

// Throws StatusError if a tensor that a cache is given has memory of it: rows of either side, or their scales.
void check_outside(const hattn_kv_cache &cache, const hattn_tensor &tensor, const char *name);

// Rows of pages to other ones, on the host; of a cache without pages, of sequences.
void copy_pages(const hattn_kv_cache &cache, std::span<const PageCopy> copies);

}  // namespace hattn
