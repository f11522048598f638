// Attention over a KV cache: an ordinary attention over views of it.
#include <algorithm>
#include <utility>

#include "kv_cache.h"
#include "problem.h"
#include "status.h"
#include "structs.h"
#include "tensor.h"

namespace hattn {

namespace {

// Of a sequence; what is no number of rows is the execute's to refuse.
int64_t query_rows(const hattn_attention_args &args, int64_t sequence) {
    const int64_t rows = args.q_lengths      ? args.q_lengths[sequence]
                         : args.cu_seqlens_q ? int64_t{args.cu_seqlens_q[sequence + 1]} - args.cu_seqlens_q[sequence]
                                             : args.q.extent[2];
    return std::clamp<int64_t>(rows, 0, kMaxExtent);
}

// What the checks of an execute cannot know: the cache's window, and keys replaced before a truncation.
void check_window(const hattn_kv_cache &cache, const hattn_attention_desc &desc, const hattn_attention_args &args) {
    require(desc.window_left >= 0 && desc.window_left < cache.desc.window, HATTN_INVALID_ARGUMENT, "window_left: is ",
            desc.window_left, ", but must be from 0 to below the cache's window, which is ", cache.desc.window);
    for (int64_t b = 0; b < cache.desc.batch; ++b) {
        const int64_t kept = cache.kept_from[static_cast<size_t>(b)], length = cache.lengths[static_cast<size_t>(b)];
        const int64_t rows = query_rows(args, b);
        const int64_t position = args.causal_offsets ? args.causal_offsets[b] : length - rows;
        const int64_t first = position - desc.window_left;
        // Behind the last key that any row sees.
        const int64_t right = desc.causal ? 0 : std::min(desc.window_right, 2 * kMaxExtent);
        const int64_t end = right < 0 ? length : std::min(length, position + rows + right);
        require(first >= kept || kept == 0 || rows == 0 || end <= 0, HATTN_INVALID_ARGUMENT,
                "q: its first row in sequence ", b, " stands at position ", position, " and sees keys from ", first,
                " on, but the ring keeps them from ", kept, " on");
    }
}

void bind(const hattn_kv_cache &cache, hattn_attention_desc &desc, hattn_attention_args &args) {
    require(desc.batch == cache.desc.batch, HATTN_INVALID_ARGUMENT, "batch: is ", desc.batch,
            ", but the cache's batch is ", cache.desc.batch);
    if (cache.ring()) {
        check_window(cache, desc, args);
    }
    if (cache.device) {
        require(desc.device == HATTN_CPU || desc.device == cache.desc.device, HATTN_INVALID_ARGUMENT, "device: is ",
                static_cast<int>(desc.device), " (", device_name(desc.device), "), but the cache is on ",
                static_cast<int>(cache.desc.device), " (", device_name(cache.desc.device), ")");
        desc.device = cache.desc.device;
        desc.device_id = cache.desc.device_id;
    }
    desc.kv_heads = cache.desc.kv_heads;
    desc.key_dim = cache.desc.key_dim;
    desc.value_dim = cache.desc.value_dim;
    desc.kv_length = cache.desc.capacity;
    desc.page_size = cache.desc.page_size;
    desc.ring = cache.ring() ? 1 : 0;
    desc.k_dtype = cache.desc.dtype;
    desc.v_dtype = cache.desc.value_dtype;
    args.k = cache.keys.rows;
    args.v = cache.values.rows;
    args.k_scale = cache.keys.scales;
    args.v_scale = cache.values.scales;
    if (!cache.paged() && !cache.ring()) {
        args.k.extent[2] = args.v.extent[2] = cache.longest();
        for (auto [side, scale] : {std::pair(&cache.keys, &args.k_scale), std::pair(&cache.values, &args.v_scale)}) {
            if (side->computes_scales) {
                scale->extent[2] = std::max(cache.longest(), kLeastKeyScales);
            }
        }
    }
    args.kv_lengths = cache.lengths.data();
    args.block_table = cache.paged() ? cache.pages.data() : nullptr;
    args.block_table_stride = cache.pages.stride();
}

}  // namespace

}  // namespace hattn

using namespace hattn;

hattn_status hattn_kv_cache_bind(const hattn_kv_cache *cache, hattn_attention_desc *desc, hattn_attention_args *args) {
    return guarded([&] {
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        hattn_attention_desc own_desc = read_struct<hattn_attention_desc>(desc, "desc");
        hattn_attention_args own_args = read_struct<hattn_attention_args>(args, "args");
        bind(*cache, own_desc, own_args);
        *desc = own_desc;
        *args = own_args;
    });
}

hattn_status hattn_kv_cache_attend(hattn_kv_cache *cache, const hattn_attention_desc *desc,
                                   const hattn_attention_args *args) {
    hattn_attention_desc own_desc;
    hattn_attention_args own_args;
    const hattn_status status = guarded([&] {
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        own_desc = read_struct(desc, "desc");
        own_args = read_struct(args, "args");
        bind(*cache, own_desc, own_args);
        if (cache->device) {
            cache->device->finish_before(own_args.queue);
        }
        // The plan serves this call only.
        own_desc.kv_length = cache->ring() ? own_desc.kv_length : cache->longest();
    });
    return status == HATTN_OK ? hattn_attention(cache->context, &own_desc, &own_args) : status;
}
