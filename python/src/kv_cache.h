// hattn_kv_cache for Python: owns its context, and may be used from several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <vector>

#include <nanobind/nanobind.h>

#include "attention.h"
#include "hattn/hattn.h"
#include "session.h"

namespace hattn_python {

class KvCache {
public:
    // value_dim 0: key_dim. Throws as check().
    KvCache(int64_t batch, int64_t kv_heads, int64_t capacity, int64_t key_dim, int64_t value_dim, hattn_dtype dtype);

    // k, v: [B, Hkv, S, D]; lengths: [B] integers or None. All or nothing.
    void append(nb::handle k, nb::handle v, nb::handle lengths);
    std::vector<int32_t> lengths() const;
    // lengths: [B] integers.
    void truncate(nb::handle lengths);
    void reset();
    // (out, lse or None, scores or None)
    nb::tuple attend(nb::handle q, nb::handle out, const Problem &problem, bool return_lse) const;

private:
    struct CacheDeleter {
        void operator()(hattn_kv_cache *cache) const {
            hattn_kv_cache_destroy(cache);
        }
    };

    // Runs a call that changes the cache: without the GIL, and alone.
    template<typename Change>
    void change(Change change);
    std::vector<int32_t> read_lengths() const;

    ContextPointer context_;
    std::unique_ptr<hattn_kv_cache, CacheDeleter> cache_;
    int64_t batch_;
    mutable std::shared_mutex mutex_;  // locked without the GIL only, so that the two cannot wait for each other
};

}  // namespace hattn_python
