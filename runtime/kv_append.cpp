// Appending rows to a KV cache, in storage of any kind.
#include <algorithm>
#include <optional>
#include <span>

#include "checked.h"
#include "kv_cache.h"
#include "kv_device.h"
#include "kv_row_writer.h"
#include "kv_runs.h"
#include "kv_storage.h"
#include "parallel.h"
#include "problem.h"
#include "rope.h"
#include "row_counts.h"
#include "status.h"
#include "structs.h"
#include "tensor.h"

namespace hattn {

namespace {

constexpr int64_t kRowsPerTask = hattn_kv_cache::kRowsPerTask;
constexpr int64_t kSerialElements = 65536;  // fewer are written by the caller's thread

void check_appended(const hattn_kv_cache &cache, const hattn_tensor &k, const hattn_tensor &v, bool packed) {
    const struct {
        const hattn_tensor &tensor;
        const char *name;
        const char *dtype_name;
        const hattn_tensor &storage;
    } sides[] = {{k, "k", "k: dtype", cache.keys.rows}, {v, "v", "v: dtype", cache.values.rows}};
    for (const auto &[tensor, name, dtype_name, storage] : sides) {
        check_float_dtype(tensor.dtype, dtype_name);
        check_tensor(tensor, name, tensor.dtype, cache.desc.device);
        require(tensor.device == HATTN_CPU || tensor.device_id == cache.desc.device_id, HATTN_INVALID_ARGUMENT, name,
                ": device_id is ", tensor.device_id, ", but the cache's device_id is ", cache.desc.device_id);
        check_tensor_extent(tensor, name, kKeyDimensions, 0, packed ? 1 : cache.desc.batch,
                            packed ? "the batch of packed keys" : "the cache's batch");
        check_tensor_extent(tensor, name, kKeyDimensions, 1, cache.desc.kv_heads, "the cache's kv_heads");
        check_tensor_extent(tensor, name, kKeyDimensions, 3, storage.extent[3], "the cache's head dimension");
        check_unit_stride(tensor, name);
        check_stride_limit(tensor, name, 2, kMaxRowStride);
        check_outside(cache, tensor, name);
    }
    check_tensor_extent(v, "v", kKeyDimensions, 2, k.extent[2], "that of k");
}

void check_counts(const hattn_kv_cache &cache, const RowCounts &added) {
    const int64_t capacity = cache.ring() ? kMaxExtent : cache.desc.capacity;
    for (int64_t b = 0; b < cache.desc.batch; ++b) {
        const int64_t length = cache.lengths[static_cast<size_t>(b)];
        require(added.of(b) >= 0 && added.of(b) <= added.rows, HATTN_INVALID_ARGUMENT, "lengths[", b, "]: is ",
                added.of(b), ", but must be from 0 to the ", added.rows, " rows of k");
        require(length + added.of(b) <= capacity, HATTN_CAPACITY_EXCEEDED, "k: sequence ", b, " has ", length,
                " keys and would have ", length + added.of(b), ", but the cache's capacity is ", capacity);
    }
}

// The tensor in which each row of a sequence is where it would be if none were packed.
hattn_tensor rows_of_sequence(hattn_tensor tensor, const RowCounts &added, int64_t sequence) {
    if (added.ends) {
        tensor.data = address(tensor, 0, 0, added.first(sequence));
        tensor.stride[0] = 0;
    }
    return tensor;
}

void write_rows(const hattn_kv_cache &cache, const hattn_tensor &k, const hattn_tensor &v, const RowCounts &added,
                const RowTurner *rope) {
    const int64_t most = added.most(cache.desc.batch);
    const int64_t blocks = ceil_div(most, kRowsPerTask);
    const auto write_block = [&](int64_t index, int32_t worker) {
        const int64_t sequence = index / blocks, count = added.of(sequence);
        const int64_t begin = index % blocks * kRowsPerTask, end = std::min(begin + kRowsPerTask, count);
        const hattn_tensor keys = rows_of_sequence(k, added, sequence), values = rows_of_sequence(v, added, sequence);
        for_each_run(cache, sequence, begin, end, count, [&](const Run &run) {
            write_run(cache, cache.keys, keys, run, rope, worker);
            write_run(cache, cache.values, values, run, nullptr, worker);
        });
    };
    const int64_t row = cache.desc.kv_heads * (cache.desc.key_dim + cache.desc.value_dim) * (rope ? 2 : 1);
    const bool serial = cache.desc.batch * std::min(most, kSerialElements) * row < kSerialElements;
    for_each_task(cache.context->executor, cache.desc.batch * blocks, serial, write_block);
}

// Rows of a sequence up to `end` have taken the place of older ones in a ring; or some of those behind its length may
// have, if they could not all be written.
void forget_replaced(hattn_kv_cache &cache, size_t b, int64_t end) {
    if (cache.ring()) {
        const int64_t replaced = std::min<int64_t>(end - cache.page_rows(), cache.lengths[b]);
        cache.kept_from[b] = std::max(cache.kept_from[b], static_cast<int32_t>(replaced));
    }
}

// What cannot be written, as on a device that fails, or with a caller's parallel_for that throws, leaves the cache as
// it was: shared pages are shared again, unless their copies have been made. But keys of a ring that were to be
// replaced are gone.
void write(hattn_kv_cache &cache, const hattn_tensor &k, const hattn_tensor &v, const RowCounts &added,
           std::span<const PageCopy> copies, const RowTurner *rope) {
    bool copied = false;
    try {
        cache.device ? copy_on_device(cache, copies) : copy_pages(cache, copies);
        copied = true;
        cache.device ? append_on_device(cache, k, v, added, rope) : write_rows(cache, k, v, added, rope);
    } catch (...) {
        if (cache.paged()) {
            copied ? cache.pages.give_back(cache.lengths, added) : cache.pages.undo_extend(cache.lengths, added);
        }
        for (size_t b = 0; b < cache.lengths.size(); ++b) {
            forget_replaced(cache, b, cache.lengths[b] + added.of(static_cast<int64_t>(b)));
        }
        throw;
    }
}

void append(hattn_kv_cache &cache, const hattn_tensor &k, const hattn_tensor &v, const RowCounts &added,
            const hattn_rope *given) {
    check_appended(cache, k, v, added.ends != nullptr);
    if (!added.lengths) {  // else rows that belong to nobody may be any number
        check_tensor_extents(k, "k");
    }
    if (added.ends) {
        check_ends(added.ends, "cu_seqlens", cache.desc.batch, added.rows, "k");
    }
    check_counts(cache, added);
    std::optional<RowTurner> rope;
    if (given) {
        rope.emplace(*given, cache.desc.key_dim, cache.desc.batch, added, cache.lengths.data(), "rope",
                     cache.rope_memory->data());
    }
    std::span<const PageCopy> copies;
    if (cache.paged()) {
        copies = cache.pages.extend(cache.lengths, added);
    }
    write(cache, k, v, added, copies, rope ? &*rope : nullptr);
    for (size_t b = 0; b < cache.lengths.size(); ++b) {
        cache.lengths[b] += static_cast<int32_t>(added.of(static_cast<int64_t>(b)));
        forget_replaced(cache, b, cache.lengths[b]);
    }
}

// lengths or ends, or neither.
void append(hattn_kv_cache *cache, const hattn_tensor *k, const hattn_tensor *v, const int32_t *lengths,
            const int32_t *ends, const hattn_rope *rope) {
    require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
    const hattn_tensor keys = read_struct(k, "k");
    const hattn_tensor values = read_struct(v, "v");
    const RowCounts added{lengths, keys.extent[2], ends};
    if (rope) {
        const hattn_rope given = read_struct(rope, "rope");
        append(*cache, keys, values, added, &given);
    } else {
        append(*cache, keys, values, added, nullptr);
    }
}

}  // namespace

}  // namespace hattn

using namespace hattn;

hattn_status hattn_kv_append(hattn_kv_cache *cache, const hattn_tensor *k, const hattn_tensor *v,
                             const int32_t *lengths) {
    return hattn_kv_append_rope(cache, k, v, lengths, nullptr);
}

hattn_status hattn_kv_append_rope(hattn_kv_cache *cache, const hattn_tensor *k, const hattn_tensor *v,
                                  const int32_t *lengths, const hattn_rope *rope) {
    return guarded([&] { append(cache, k, v, lengths, nullptr, rope); });
}

hattn_status hattn_kv_append_packed(hattn_kv_cache *cache, const hattn_tensor *k, const hattn_tensor *v,
                                    const int32_t *cu_seqlens, const hattn_rope *rope) {
    return guarded([&] {
        require(cu_seqlens, HATTN_INVALID_ARGUMENT, "cu_seqlens: is null");
        append(cache, k, v, nullptr, cu_seqlens, rope);
    });
}
