// What a KV cache holds. Every kind of storage is a tensor [pages, Hkv, page_rows(), D]: contiguous storage and rings
// have one page per sequence.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "context.h"
#include "hattn/hattn.h"
#include "page_table.h"

struct hattn_kv_cache {
    hattn_context *context;
    hattn_kv_cache_desc desc;  // as given, defaults filled in, a ring's capacity rounded up
    std::unique_ptr<hattn::ContextMemory> key_memory, value_memory, rope_memory;
    hattn_tensor keys, values;  // the whole storage
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
        return keys.extent[2];
    }

    int64_t longest() const {
        return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    }

    // Where the key at a position of a sequence lies.
    int64_t page_of(int64_t sequence, int64_t position) const {
        return paged() ? pages.page_of(sequence, position) : sequence;
    }
    int64_t row_of(int64_t position) const {
        return position % page_rows();
    }
};
