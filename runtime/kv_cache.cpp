// Keys and values of a batch of sequences: creation, lengths, forks and views. kv_append.cpp writes rows, kv_attend.cpp
// reads them.
#include "kv_cache.h"

#include <algorithm>

#include "checked.h"
#include "device/device_choice.h"
#include "kernel_registry.h"
#include "key_storage.h"
#include "kv_device.h"
#include "kv_storage.h"
#include "problem.h"
#include "rope.h"
#include "scratch.h"
#include "status.h"
#include "structs.h"
#include "tensor.h"

namespace hattn {

namespace {

void check_desc(const hattn_kv_cache_desc &desc) {
    check_storage_dtype(desc.dtype, "dtype");
    check_storage_dtype(desc.value_dtype, "value_dtype");
    check_extent(desc.batch, 0, "batch");
    check_extent(desc.kv_heads, 1, "kv_heads");
    check_extent(desc.capacity, 1, "capacity");
    check_extent(desc.key_dim, 1, "key_dim");
    check_extent(desc.value_dim, 0, "value_dim");
    check_head(desc.key_dim, "key_dim");
    check_head(desc.value_dim, "value_dim");
    check_page_size(desc.page_size);
    check_extent(desc.page_count, 0, "page_count");
    require(desc.page_count == 0 || desc.page_size > 0, HATTN_INVALID_ARGUMENT, "page_count: is ", desc.page_count,
            ", but must be 0 without pages, page_size being 0");
    check_extent(desc.window, 0, "window");
    require(desc.window == 0 || desc.page_size == 0, HATTN_INVALID_ARGUMENT, "window: is ", desc.window,
            ", but with a page_size, which is ", desc.page_size, ", it must be 0 (none)");
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
        check_extent(desc.page_count, 0, "number of pages");
    }
    return desc;
}

void check_device(const hattn_kv_cache_desc &desc) {
    require(desc.device >= HATTN_CPU && desc.device <= HATTN_CUDA, HATTN_INVALID_ARGUMENT, "device: is ",
            static_cast<int>(desc.device), ", which is no hattn_device");
    check_device_id(desc.device, desc.device_id);
    require(!desc.queue || desc.device != HATTN_CPU, HATTN_INVALID_ARGUMENT, "queue: is given, but device is ",
            static_cast<int>(desc.device), " (", device_name(desc.device), ")");
}

CacheKernels kernels_of(const TargetInfo &target) {
    return {&only_kernel(target, KernelKind::kWiden),
            &only_kernel(target, KernelKind::kNarrow),
            {&only_kernel(target, KernelKind::kBlockScales), &only_kernel(target, KernelKind::kQuantize)}};
}

std::unique_ptr<hattn_kv_cache> make_cache(hattn_context &context, hattn_kv_cache_desc given) {
    given.value_dtype = given.value_dtype == hattn_dtype{} ? given.dtype : given.value_dtype;
    check_desc(given);
    check_device(given);
    auto cache = std::make_unique<hattn_kv_cache>();
    cache->context = &context;
    cache->desc = with_defaults(given);
    cache->kernels = kernels_of(*context.target);
    const hattn_kv_cache_desc &desc = cache->desc;
    cache->lengths.assign(static_cast<size_t>(desc.batch), 0);
    cache->kept_from.assign(static_cast<size_t>(desc.batch), 0);
    if (cache->paged()) {
        cache->pages = PageTable(desc.batch, desc.capacity, desc.page_size, desc.page_count);
    }
    if (desc.device != HATTN_CPU) {
        cache->device = std::make_unique<DeviceCache>(desc.device, desc.device_id, desc.queue);
        check_heads(*find_device_target(desc.device), desc.key_dim, desc.value_dim);
    }
    cache->desc.queue = nullptr;  // the caller's
    cache->keys = make_side(*cache, desc.dtype, desc.key_dim, given.k_scale, "k_scale");
    cache->values = make_side(*cache, desc.value_dtype, desc.value_dim, given.v_scale, "v_scale");
    cache->desc.k_scale = cache->desc.v_scale = HATTN_TENSOR_INIT;  // the caller's memory
    const auto workers = static_cast<size_t>(context.executor.threads);
    cache->rope_memory = std::make_unique<ContextMemory>(
        context, rope_memory_bytes(desc.key_dim, context.executor.threads), kScratchAlignment);
    cache->append_memory = std::make_unique<ContextMemory>(
        context, static_cast<size_t>(cache->worker_bytes()) * workers, kScratchAlignment);
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

// Rows that the first `length` keys lie in: of a ring, which keeps positions in place, all.
int64_t kept_rows(const hattn_kv_cache &cache, int64_t length) {
    return cache.ring() ? cache.page_rows() : length;
}

void fork(hattn_kv_cache &cache, int64_t from, int64_t to, int64_t length) {
    shorten(cache, to, 0);  // of what it had, nothing is left where copying fails half-way
    if (cache.paged()) {
        cache.pages.share(from, to, length);
    } else if (length > 0) {
        const PageCopy rows{to, static_cast<int32_t>(from), static_cast<int32_t>(to), kept_rows(cache, length)};
        cache.device ? copy_on_device(cache, {&rows, 1}) : copy_pages(cache, {&rows, 1});
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
    desc->k_scale = desc->v_scale = HATTN_TENSOR_INIT;
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
        *k = cache->keys.rows;
        *v = cache->values.rows;
    });
}

hattn_status hattn_kv_cache_scales(const hattn_kv_cache *cache, hattn_tensor *k_scale, hattn_tensor *v_scale) {
    return guarded([&] {
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        require(k_scale, HATTN_INVALID_ARGUMENT, "k_scale: is null");
        require(v_scale, HATTN_INVALID_ARGUMENT, "v_scale: is null");
        *k_scale = cache->keys.scales;
        *v_scale = cache->values.scales;
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
