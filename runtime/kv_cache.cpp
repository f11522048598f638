// Keys and values of a batch of sequences, in storage of fixed capacity: [B, Hkv, capacity, D], contiguous.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "checked.h"
#include "context.h"
#include "problem.h"
#include "scratch.h"
#include "status.h"
#include "structs.h"
#include "tensor.h"

struct hattn_kv_cache {
    hattn_context *context;
    hattn_kv_cache_desc desc;
    std::unique_ptr<hattn::ContextMemory> keys, values;
    std::vector<int32_t> lengths;

    hattn_tensor view(void *data, int64_t dim) const {
        hattn_tensor tensor = HATTN_TENSOR_INIT;
        tensor.data = data;
        const int64_t extent[4] = {desc.batch, desc.kv_heads, desc.capacity, dim};
        const int64_t stride[4] = {desc.kv_heads * desc.capacity * dim, desc.capacity * dim, dim, 1};
        std::copy(extent, extent + 4, tensor.extent);
        std::copy(stride, stride + 4, tensor.stride);
        return tensor;
    }
    hattn_tensor key_view() const {
        return view(keys->data(), desc.key_dim);
    }
    hattn_tensor value_view() const {
        return view(values->data(), desc.value_dim);
    }
};

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
    require(desc.page_size >= 0, HATTN_INVALID_ARGUMENT, "page_size: is ", desc.page_size,
            ", but must be 0 or a page size");
    require(desc.page_size == 0, HATTN_NOT_SUPPORTED, "page_size: is ", desc.page_size,
            ", but only 0 (contiguous) is supported yet");
}

size_t storage_bytes(const hattn_kv_cache_desc &desc, int64_t dim, const char *what) {
    int64_t bytes = sizeof(float);
    for (int64_t extent : {desc.batch, desc.kv_heads, desc.capacity, dim}) {
        bytes = checked_multiply(bytes, extent, what);
    }
    return static_cast<size_t>(bytes);
}

void check_appended(const hattn_kv_cache &cache, const hattn_tensor &k, const hattn_tensor &v) {
    const struct {
        const hattn_tensor &tensor;
        const char *name;
        int64_t dim;
    } sides[] = {{k, "k", cache.desc.key_dim}, {v, "v", cache.desc.value_dim}};
    for (const auto &side : sides) {
        check_tensor(side.tensor, side.name, cache.desc.dtype);
        check_tensor_extent(side.tensor, side.name, kKeyDimensions, 0, cache.desc.batch, "the cache's batch");
        check_tensor_extent(side.tensor, side.name, kKeyDimensions, 1, cache.desc.kv_heads, "the cache's kv_heads");
        check_tensor_extent(side.tensor, side.name, kKeyDimensions, 3, side.dim, "the cache's head dimension");
        check_unit_stride(side.tensor, side.name);
        const hattn_tensor storage = &side == sides ? cache.key_view() : cache.value_view();
        require(!overlaps(byte_range(side.tensor), byte_range(storage)), HATTN_INVALID_ARGUMENT, side.name,
                ": its memory, from ", side.tensor.data, ", overlaps that of the cache, from ", storage.data);
    }
    check_tensor_extent(v, "v", kKeyDimensions, 2, k.extent[2], "that of k");
}

// Copies the first `rows` rows of one sequence behind those it has.
void append_rows(const hattn_tensor &from, const hattn_tensor &to, int64_t batch, int64_t at, int64_t rows) {
    const auto row_bytes = static_cast<size_t>(to.extent[3]) * sizeof(float);
    for (int64_t h = 0; h < to.extent[1]; ++h) {
        for (int64_t i = 0; i < rows; ++i) {
            std::memcpy(element<float>(to, batch, h, at + i), element<const float>(from, batch, h, i), row_bytes);
        }
    }
}

void append(hattn_kv_cache &cache, const hattn_tensor &k, const hattn_tensor &v, const int32_t *lengths) {
    const int64_t rows = k.extent[2];
    for (int64_t b = 0; b < cache.desc.batch; ++b) {
        const int64_t added = lengths ? lengths[b] : rows;
        require(added >= 0 && added <= rows, HATTN_INVALID_ARGUMENT, "lengths[", b, "]: is ", added,
                ", but must be from 0 to the ", rows, " rows of k");
        require(cache.lengths[b] + added <= cache.desc.capacity, HATTN_CAPACITY_EXCEEDED, "k: sequence ", b, " has ",
                cache.lengths[b], " keys and would have ", cache.lengths[b] + added, ", but the cache's capacity is ",
                cache.desc.capacity);
    }
    for (int64_t b = 0; b < cache.desc.batch; ++b) {
        const int64_t added = lengths ? lengths[b] : rows;
        append_rows(k, cache.key_view(), b, cache.lengths[b], added);
        append_rows(v, cache.value_view(), b, cache.lengths[b], added);
        cache.lengths[b] += static_cast<int32_t>(added);
    }
}

// The cache's part of an attention over it.
void fill_in(const hattn_kv_cache &cache, hattn_attention_desc &desc, hattn_attention_args &args) {
    const int64_t longest = cache.lengths.empty() ? 0 : *std::max_element(cache.lengths.begin(), cache.lengths.end());
    require(desc.batch == cache.desc.batch, HATTN_INVALID_ARGUMENT, "batch: is ", desc.batch,
            ", but the cache's batch is ", cache.desc.batch);
    desc.kv_heads = cache.desc.kv_heads;
    desc.key_dim = cache.desc.key_dim;
    desc.value_dim = cache.desc.value_dim;
    desc.kv_length = longest;
    args.k = cache.key_view();
    args.v = cache.value_view();
    args.k.extent[2] = args.v.extent[2] = longest;
    args.kv_lengths = cache.lengths.data();
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
        auto created = std::make_unique<hattn_kv_cache>();
        created->context = context;
        created->desc = read_struct(desc, "desc");
        check_desc(created->desc);
        if (created->desc.value_dim == 0) {
            created->desc.value_dim = created->desc.key_dim;
        }
        const size_t key_bytes = storage_bytes(created->desc, created->desc.key_dim, "size of the keys");
        const size_t value_bytes = storage_bytes(created->desc, created->desc.value_dim, "size of the values");
        created->lengths.assign(static_cast<size_t>(created->desc.batch), 0);
        created->keys = std::make_unique<ContextMemory>(*context, key_bytes, kScratchAlignment);
        created->values = std::make_unique<ContextMemory>(*context, value_bytes, kScratchAlignment);
        *cache = created.release();
    });
}

void hattn_kv_cache_destroy(hattn_kv_cache *cache) {
    delete cache;
}

hattn_status hattn_kv_append(hattn_kv_cache *cache, const hattn_tensor *k, const hattn_tensor *v,
                             const int32_t *lengths) {
    return guarded([&] {
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        const hattn_tensor keys = read_struct(k, "k");
        const hattn_tensor values = read_struct(v, "v");
        check_appended(*cache, keys, values);
        append(*cache, keys, values, lengths);
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
        for (size_t b = 0; b < cache->lengths.size(); ++b) {
            require(lengths[b] >= 0 && lengths[b] <= cache->lengths[b], HATTN_INVALID_ARGUMENT, "lengths[", b, "]: is ",
                    lengths[b], ", but must be from 0 to the current length, ", cache->lengths[b]);
        }
        std::copy(lengths, lengths + cache->lengths.size(), cache->lengths.begin());
    });
}

hattn_status hattn_kv_cache_reset(hattn_kv_cache *cache) {
    return guarded([&] {
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        std::fill(cache->lengths.begin(), cache->lengths.end(), 0);
    });
}

hattn_status hattn_kv_cache_view(const hattn_kv_cache *cache, hattn_tensor *k, hattn_tensor *v) {
    return guarded([&] {
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        require(k, HATTN_INVALID_ARGUMENT, "k: is null");
        require(v, HATTN_INVALID_ARGUMENT, "v: is null");
        *k = cache->key_view();
        *v = cache->value_view();
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
        fill_in(*cache, own_desc, own_args);
    });
    return status == HATTN_OK ? hattn_attention(cache->context, &own_desc, &own_args) : status;
}
