// What a KV cache holds. Every kind of storage is a tensor [pages, Hkv, page_rows(), D]: contiguous storage and rings
// have one page per sequence.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "context.h"
#include "convert.h"
#include "device/device_cache.h"
#include "hattn/hattn.h"
#include "page_table.h"

namespace hattn {

// Keys that computed scales have room for at least: those of one key in one sequence might be of heads.
inline constexpr int64_t kLeastKeyScales = 2;

// One side of a cache.
struct CachedSide {
    hattn_tensor rows = HATTN_TENSOR_INIT;    // the whole storage
    hattn_tensor scales = HATTN_TENSOR_INIT;  // of quantised rows, as hattn_attention_args takes them; else no data
    bool computes_scales = false;             // every key has its own, else they were given
    std::unique_ptr<ContextMemory> row_memory, scale_memory;
    std::unique_ptr<DeviceCache::Memory> device_rows, device_scales;  // in place of them
};

// Conversions of what is appended.
struct CacheKernels {
    const KernelInfo *widen, *narrow;
    QuantizeKernels quantize;
};

}  // namespace hattn

struct hattn_kv_cache {
    hattn_context *context;
    hattn_kv_cache_desc desc;  // as given, defaults filled in, a ring's capacity rounded up
    std::unique_ptr<hattn::ContextMemory> rope_memory, append_memory;
    std::unique_ptr<hattn::DeviceCache> device;  // of rows that are on one, else null
    hattn::CachedSide keys, values;
    hattn::CacheKernels kernels;
    std::vector<int32_t> lengths;
    std::vector<int32_t> kept_from;  // the first key of each sequence that no other has replaced; above 0 in rings only
    hattn::PageTable pages;          // of a paged cache

    bool paged() const {
        return desc.page_size > 0;
    }
    bool ring() const {
        return desc.window > 0;
    }
    int64_t page_rows() const {
        return keys.rows.extent[2];
    }

    int64_t longest() const {
        return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    }

    // Of a worker of an append: rows in float32, then scratch of the conversion kernels.
    static constexpr int64_t kRowsPerTask = 16;
    int64_t row_floats() const {
        return kRowsPerTask * std::max(desc.key_dim, desc.value_dim);
    }
    int64_t worker_bytes() const {
        const int64_t bytes = row_floats() * static_cast<int64_t>(sizeof(float)) +
                              hattn::quantize_scratch_bytes(std::max(desc.key_dim, desc.value_dim));
        return (bytes + 63) / 64 * 64;
    }

    // Where the key at a position of a sequence lies.
    int64_t page_of(int64_t sequence, int64_t position) const {
        return paged() ? pages.page_of(sequence, position) : sequence;
    }
    int64_t row_of(int64_t position) const {
        return position % page_rows();
    }
};
