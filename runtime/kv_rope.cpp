// Turning queries to their places among the keys of a KV cache.
#include <vector>

#include "kv_cache.h"
#include "kv_storage.h"
#include "rope_apply.h"
#include "status.h"
#include "structs.h"
#include "tensor.h"

namespace hattn {

namespace {

void check_queries(const hattn_kv_cache &cache, const hattn_tensor &x, bool packed) {
    require(x.device == HATTN_CPU || (x.device == cache.desc.device && x.device_id == cache.desc.device_id),
            HATTN_INVALID_ARGUMENT, "x: is on ", NamedPlace{x}, ", but the cache is on ", NamedPlace{cache.keys.rows});
    check_tensor_extent(x, "x", kQueryDimensions, 0, packed ? 1 : cache.desc.batch,
                        packed ? "the batch of packed queries" : "the cache's batch");
    check_tensor_extent(x, "x", kQueryDimensions, 3, cache.desc.key_dim, "the cache's head dimension");
}

// Of the first row of each sequence: they are its last ones.
std::vector<int32_t> first_positions(const hattn_kv_cache &cache, const RowCounts &rows, bool given) {
    std::vector<int32_t> positions(cache.lengths);
    for (size_t b = 0; b < positions.size() && !given; ++b) {
        const int64_t count = rows.of(static_cast<int64_t>(b));
        require(count <= positions[b], HATTN_INVALID_ARGUMENT, "x: sequence ", b, " has ", count,
                " rows, but the cache has ", positions[b], " keys of it");
        positions[b] -= static_cast<int32_t>(count);
    }
    return positions;
}

// lengths or ends, or neither.
void turn(hattn_kv_cache *cache, const hattn_rope *rope, const hattn_tensor *x, const hattn_tensor *out,
          const int32_t *lengths, const int32_t *ends) {
    require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
    const hattn_rope given = read_struct(rope, "rope");
    const hattn_tensor from = read_struct(x, "x"), to = read_struct(out, "out");
    const RowCounts rows{lengths, from.extent[2], ends};
    check_queries(*cache, from, ends != nullptr);
    if (ends) {
        check_ends(ends, "cu_seqlens", cache->desc.batch, rows.rows, "x");
    }
    TurnedTensor turned{from, to, cache->desc.batch, rows, nullptr, "x"};
    check_turned(turned);
    check_outside(*cache, to, "out");
    const std::vector<int32_t> positions = first_positions(*cache, rows, given.positions != nullptr);
    turned.offsets = positions.data();
    if (from.device == HATTN_CPU) {
        turn_on_host(*cache->context, given, turned);
    } else {
        turn_on_device(*cache->context, given, turned, cache->device->work());
        cache->device->finish_work();
    }
}

}  // namespace

}  // namespace hattn

using namespace hattn;

hattn_status hattn_kv_rope_apply(hattn_kv_cache *cache, const hattn_rope *rope, const hattn_tensor *x,
                                 const hattn_tensor *out, const int32_t *lengths) {
    return guarded([&] { turn(cache, rope, x, out, lengths, nullptr); });
}

hattn_status hattn_kv_rope_apply_packed(hattn_kv_cache *cache, const hattn_rope *rope, const hattn_tensor *x,
                                        const hattn_tensor *out, const int32_t *cu_seqlens) {
    return guarded([&] {
        require(cu_seqlens, HATTN_INVALID_ARGUMENT, "cu_seqlens: is null");
        turn(cache, rope, x, out, nullptr, cu_seqlens);
    });
}
