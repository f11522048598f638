// Keys and values of a batch of sequences: creation, lengths, forks and views. kv_append.cpp writes rows, kv_attend.cpp
// reads them.
#include "kv_cache.h"

#include <algorithm>
#include <cstring>

#include "checked.h"
#include "key_storage.h"
#include "problem.h"
#include "rope.h"
#include "scratch.h"
#include "status.h"
#include "structs.h"
#include "tensor.h"

namespace hattn {

namespace {

void check_cache_extent(int64_t value, int64_t least, const char *name) {
    require(value >= least, HATTN_INVALID_ARGUMENT, name, ": is ", value, ", but must be at least ", least);
    require(value <= kMaxExtent, HATTN_OVERFLOW, name, ": is ", value, ", but the kernels count up to ", kMaxExtent);
}

void check_desc(const hattn_kv_cache_desc &desc) {
    check_storage_dtype(desc.dtype, "dtype");
    check_cache_extent(desc.batch, 0, "batch");
    check_cache_extent(desc.kv_heads, 1, "kv_heads");
    check_cache_extent(desc.capacity, 1, "capacity");
    check_cache_extent(desc.key_dim, 1, "key_dim");
    check_cache_extent(desc.value_dim, 0, "value_dim");
    check_page_size(desc.page_size);
    check_cache_extent(desc.page_count, 0, "page_count");
    require(desc.page_count == 0 || desc.page_size > 0, HATTN_INVALID_ARGUMENT, "page_count: is ", desc.page_count,
            ", but must be 0 without pages, page_size being 0");
    check_cache_extent(desc.window, 0, "window");
    require(desc.window == 0 || desc.page_size == 0, HATTN_NOT_SUPPORTED, "window: is ", desc.window,
            ", but with a page_size, which is ", desc.page_size, ", only 0 (none) is supported");
    require(desc.window <= desc.capacity || desc.window == 0, HATTN_INVALID_ARGUMENT, "window: is ", desc.window,
            ", but must be at most the capacity, which is ", desc.capacity);
}

hattn_kv_cache_desc with_defaults(hattn_kv_cache_desc desc) {
    desc.value_dim = desc.value_dim == 0 ? desc.key_dim : desc.value_dim;
    if (desc.window > 0) {
        desc.capacity = round_up(desc.capacity, kGranuleKeys);
    }
    if (desc.page_size > 0 && desc.page_count == 0) {
        desc.page_count = checked_multiply(desc.batch, ceil_div(desc.capacity, desc.page_size), "number of pages");
        check_cache_extent(desc.page_count, 0, "number of pages");
    }
    return desc;
}

// One side's storage, without memory.
hattn_tensor storage(const hattn_kv_cache_desc &desc, int64_t dim) {
    const int64_t pages = desc.page_size > 0 ? desc.page_count : desc.batch;
    const int64_t rows = desc.page_size > 0 ? desc.page_size : desc.capacity;
    const int64_t extent[4] = {pages, desc.kv_heads, rows, dim};
    hattn_tensor tensor = HATTN_TENSOR_INIT;
    int64_t elements = 1;
    for (int d = 3; d >= 0; --d) {
        tensor.extent[d] = extent[d];
        tensor.stride[d] = elements;
        elements = checked_multiply(elements, extent[d], "size of the cache");
    }
    checked_multiply(elements, sizeof(float), "size of the cache");
    return tensor;
}

std::unique_ptr<ContextMemory> allocate(const hattn_context &context, hattn_tensor &tensor) {
    const int64_t bytes = tensor.extent[0] * tensor.stride[0] * static_cast<int64_t>(sizeof(float));
    auto memory = std::make_unique<ContextMemory>(context, static_cast<size_t>(bytes), kScratchAlignment);
    tensor.data = memory->data();
    return memory;
}

std::unique_ptr<hattn_kv_cache> make_cache(hattn_context &context, const hattn_kv_cache_desc &given) {
    check_desc(given);
    auto cache = std::make_unique<hattn_kv_cache>();
    cache->context = &context;
    cache->desc = with_defaults(given);
    const hattn_kv_cache_desc &desc = cache->desc;
    cache->keys = storage(desc, desc.key_dim);
    cache->values = storage(desc, desc.value_dim);
    cache->lengths.assign(static_cast<size_t>(desc.batch), 0);
    cache->kept_from.assign(static_cast<size_t>(desc.batch), 0);
    if (cache->paged()) {
        cache->pages = PageTable(desc.batch, desc.capacity, desc.page_size, desc.page_count);
    }
    cache->key_memory = allocate(context, cache->keys);
    cache->value_memory = allocate(context, cache->values);
    cache->rope_memory = std::make_unique<ContextMemory>(
        context, rope_memory_bytes(desc.key_dim, context.executor.threads), kScratchAlignment);
    return cache;
}

// Throws unless `length` rows of a sequence may remain; `name` is the argument that asks for it.
void check_kept_length(const hattn_kv_cache &cache, int64_t sequence, int64_t length, const char *name) {
    const auto b = static_cast<size_t>(sequence);
    require(length >= 0 && length <= cache.lengths[b], HATTN_INVALID_ARGUMENT, name, ": of sequence ", sequence, " is ",
            length, ", but must be from 0 to its current length, ", cache.lengths[b]);
    const int64_t kept = cache.kept_from[b];
    require(length == 0 || kept == 0 || length - kept >= cache.desc.window, HATTN_INVALID_ARGUMENT, name,
            ": of sequence ", sequence, " is ", length, ", but its ring keeps keys from ", kept,
            " on, so that with a window of ", cache.desc.window, " it must be at least ", kept + cache.desc.window,
            ", or 0");
}

void shorten(hattn_kv_cache &cache, int64_t sequence, int64_t length) {
    const auto b = static_cast<size_t>(sequence);
    if (cache.paged()) {
        cache.pages.shrink(sequence, cache.lengths[b], length);
    }
    cache.lengths[b] = static_cast<int32_t>(length);
    if (length == 0) {
        cache.kept_from[b] = 0;
    }
}

void check_sequence(const hattn_kv_cache &cache, int64_t sequence, const char *name) {
    require(sequence >= 0 && sequence < cache.desc.batch, HATTN_INVALID_ARGUMENT, name, ": is ", sequence,
            ", but must be from 0 to below the cache's batch, ", cache.desc.batch);
}

// Of a ring, which keeps positions in place, all its rows.
void copy_rows(const hattn_kv_cache &cache, const hattn_tensor &side, int64_t from, int64_t to, int64_t length) {
    const int64_t rows = cache.ring() ? side.extent[2] : length;
    for (int64_t h = 0; h < side.extent[1]; ++h) {
        std::memcpy(element<float>(side, to, h, 0), element<float>(side, from, h, 0),
                    static_cast<size_t>(rows * side.extent[3]) * sizeof(float));
    }
}

void fork(hattn_kv_cache &cache, int64_t from, int64_t to, int64_t length) {
    shorten(cache, to, 0);
    if (cache.paged()) {
        cache.pages.share(from, to, length);
    } else if (length > 0) {
        copy_rows(cache, cache.keys, from, to, length);
        copy_rows(cache, cache.values, from, to, length);
    }
    cache.lengths[static_cast<size_t>(to)] = static_cast<int32_t>(length);
    cache.kept_from[static_cast<size_t>(to)] = length > 0 ? cache.kept_from[static_cast<size_t>(from)] : 0;
}

}  // namespace

}  // namespace hattn

using namespace hattn;

void hattn_kv_cache_desc_init(hattn_kv_cache_desc *desc) {
    if (!desc) {
        return;
    }
    *desc = {};
    desc->struct_size = sizeof(*desc);
    desc->dtype = HATTN_FLOAT32;
}

hattn_status hattn_kv_cache_create(hattn_context *context, const hattn_kv_cache_desc *desc, hattn_kv_cache **cache) {
    return guarded([&] {
        require(context, HATTN_INVALID_ARGUMENT, "context: is null");
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        *cache = make_cache(*context, read_struct(desc, "desc")).release();
    });
}

void hattn_kv_cache_destroy(hattn_kv_cache *cache) {
    delete cache;
}

hattn_status hattn_kv_cache_fork(hattn_kv_cache *cache, int64_t from, int64_t to, int64_t length) {
    return guarded([&] {
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        check_sequence(*cache, from, "from");
        check_sequence(*cache, to, "to");
        require(from != to, HATTN_INVALID_ARGUMENT, "to: is ", to, ", but must differ from `from`, which is ", from);
        const int64_t rows = length == -1 ? cache->lengths[static_cast<size_t>(from)] : length;
        check_kept_length(*cache, from, rows, "length");
        fork(*cache, from, to, rows);
    });
}

hattn_status hattn_kv_cache_lengths(const hattn_kv_cache *cache, int32_t *lengths) {
    return guarded([&] {
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        require(lengths || cache->lengths.empty(), HATTN_INVALID_ARGUMENT, "lengths: is null");
        std::copy(cache->lengths.begin(), cache->lengths.end(), lengths);
    });
}

hattn_status hattn_kv_cache_truncate(hattn_kv_cache *cache, const int32_t *lengths) {
    return guarded([&] {
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        require(lengths || cache->lengths.empty(), HATTN_INVALID_ARGUMENT, "lengths: is null");
        for (int64_t b = 0; b < cache->desc.batch; ++b) {
            check_kept_length(*cache, b, lengths[b], "lengths");
        }
        for (int64_t b = 0; b < cache->desc.batch; ++b) {
            shorten(*cache, b, lengths[b]);
        }
    });
}

hattn_status hattn_kv_cache_reset(hattn_kv_cache *cache) {
    return guarded([&] {
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        for (int64_t b = 0; b < cache->desc.batch; ++b) {
            shorten(*cache, b, 0);
        }
    });
}

hattn_status hattn_kv_cache_view(const hattn_kv_cache *cache, hattn_tensor *k, hattn_tensor *v) {
    return guarded([&] {
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        require(k, HATTN_INVALID_ARGUMENT, "k: is null");
        require(v, HATTN_INVALID_ARGUMENT, "v: is null");
        *k = cache->keys;
        *v = cache->values;
    });
}

hattn_status hattn_kv_cache_pages(const hattn_kv_cache *cache, int64_t *used, int64_t *available) {
    return guarded([&] {
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        require(used, HATTN_INVALID_ARGUMENT, "used: is null");
        require(available, HATTN_INVALID_ARGUMENT, "available: is null");
        require(cache->paged(), HATTN_INVALID_ARGUMENT, "cache: its page_size is 0, so that it has no pages");
        *used = cache->pages.used();
        *available = cache->pages.available();
    });
}

hattn_status hattn_kv_cache_block_table(const hattn_kv_cache *cache, const int32_t **table, int64_t *stride) {
    return guarded([&] {
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        require(table, HATTN_INVALID_ARGUMENT, "table: is null");
        require(stride, HATTN_INVALID_ARGUMENT, "stride: is null");
        require(cache->paged(), HATTN_INVALID_ARGUMENT, "cache: its page_size is 0, so that it has no pages");
        *table = cache->pages.data();
        *stride = cache->pages.stride();
    });
}
