// Memory of a KV cache: layout of a side, its scales, where they are kept.
#pragma once

#include <cstdint>

#include "kv_cache.h"

namespace hattn {

// given: scales of the whole side, or without data; copied. name: theirs in messages. Throws StatusError.
CachedSide make_side(const hattn_kv_cache &cache, hattn_dtype dtype, int64_t dim, const hattn_tensor &given,
                     const char *name);

}  // namespace hattn
