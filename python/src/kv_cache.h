// hattn_kv_cache for Python: owns its context, and may be used from several threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "attention.h"
#include "hattn/hattn.h"
#include "released_gil.h"
#include "rope.h"
#include "session.h"

namespace hattn_python {

class KvCache {
public:
    // value_dim 0: key_dim; page_size, page_count, window 0: none; value_dtype none: dtype; scales: rank 4, or None.
    // Throws as check().
    KvCache(int64_t batch, int64_t kv_heads, int64_t capacity, int64_t key_dim, int64_t value_dim, hattn_dtype dtype,
            int64_t page_size, int64_t page_count, int64_t window, std::optional<hattn_dtype> value_dtype,
            nb::handle k_scale, nb::handle v_scale, hattn_device device, int32_t device_id,
            std::optional<uintptr_t> queue);

    // k, v: [B, Hkv, S, D] in the layout; lengths: [B] integers or None; cu_seqlens: [B + 1] integers, with k and v
    // [1, Hkv, T, D], or None; rope and positions as RopeCall takes them. All or nothing.
    // keeps: arrays on the device stay until they have been read.
    void append(nb::handle k, nb::handle v, Layout layout, nb::handle lengths, nb::handle cu_seqlens,
                const RopeOptions *rope, nb::handle positions, bool keeps);
    // x, out, layout, as apply_rope() takes them, the rest likewise. Returns out.
    nb::object apply_rope(nb::handle x, nb::handle out, Layout layout, nb::handle lengths, nb::handle cu_seqlens,
                          const RopeOptions &rope, nb::handle positions, bool keeps);
    // length -1: all.
    void fork(int64_t source, int64_t target, int64_t length);
    std::vector<int32_t> lengths() const;
    // (used, available)
    nb::tuple pages() const;
    // A copy, int32 [B, most pages of a sequence].
    nb::object block_table() const;
    // (k, v): of a cache on the host read-only arrays of the whole storage, which keep `self` alive. 16 bits are seen
    // as uint16, two int4 as uint8.
    static nb::tuple view(nb::handle self);
    // (k, v): the scales of the storage, likewise; None where there are none.
    static nb::tuple scales(nb::handle self);
    // lengths: [B] integers.
    void truncate(nb::handle lengths);
    void reset();
    // (out, lse or None, scores or None)
    nb::tuple attend(nb::handle q, nb::handle out, const Problem &problem, bool return_lse) const;
    // Bytes of Problem::device_workspace that attend() then takes.
    size_t device_workspace(nb::handle q, nb::handle out, const Problem &problem) const;

private:
    struct CacheDeleter {
        // Of a device waits for its queue, in which there may be functions of Python's.
        void operator()(hattn_kv_cache *cache) const {
            const ReleasedGil released;
            hattn_kv_cache_destroy(cache);
        }
    };

    // Runs a call that may put work into the queue of a device; keeps: arrays stay until it has been done.
    template<typename Call>
    void put_into_queue(Call call, bool keeps, std::pair<Array, Array> arrays);

    // Runs a call that changes the cache: without the GIL, and alone.
    template<typename Change>
    void change(Change change);
    // Runs a call that reads it, beside others that do. It may not run code of Python's, which could want to change the
    // cache, and make objects of Python's, which collects garbage then: its status is the caller's to check.
    template<typename Read>
    hattn_status read(Read read) const;

    // Whole storage, as far as an AttentionCall wants it before it is bound.
    Keys keys() const;
    // Binds a call over keys() for the first time, with the type of `out`.
    int64_t bind(AttentionCall &call, nb::handle out) const;  // the keys of its longest sequence

    static constexpr size_t kCallsUnderWay = HATTN_KV_CALLS_UNDER_WAY;

    ContextPointer context_;
    std::array<std::pair<Array, Array>, kCallsUnderWay>
        being_read_;  // k, v, or x, out; the cache is destroyed before them
    size_t next_read_ = 0;
    std::unique_ptr<hattn_kv_cache, CacheDeleter> cache_;
    int64_t batch_;
    // Locked without the GIL only, so that the two cannot wait for each other. Whoever waits to change the cache holds
    // the gate, which those that come to read it pass: else new ones would come as long as some read.
    mutable std::mutex gate_;
    mutable std::shared_mutex mutex_;
};

}  // namespace hattn_python
