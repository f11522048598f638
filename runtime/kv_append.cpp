// Appending rows to a KV cache, in storage of any kind.
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "checked.h"
#include "kv_cache.h"
#include "kv_device.h"
#include "kv_runs.h"
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
        require(!overlaps(byte_range(tensor), byte_range(storage)), HATTN_INVALID_ARGUMENT, name, ": its memory, from ",
                tensor.data, ", overlaps that of the cache, from ", storage.data);
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

// Rows of a type that both have; strides in bytes.
void copy_rows(const void *from, int64_t from_stride, void *to, int64_t to_stride, int64_t row_bytes, int64_t rows) {
    if (from_stride == row_bytes && to_stride == row_bytes) {
        std::memcpy(to, from, static_cast<size_t>(rows * row_bytes));
        return;
    }
    for (int64_t i = 0; i < rows; ++i) {
        std::memcpy(static_cast<char *>(to) + i * to_stride, static_cast<const char *>(from) + i * from_stride,
                    static_cast<size_t>(row_bytes));
    }
}

void copy_page(const hattn_tensor &side, const PageCopy &copy) {
    const auto bytes = static_cast<size_t>(storage_bytes(side.dtype, copy.rows * side.stride[2]));
    for (int64_t h = 0; h < side.extent[1]; ++h) {
        std::memcpy(address(side, copy.to, h, 0), address(side, copy.from, h, 0), bytes);
    }
}

void copy_run(const hattn_tensor &from, const hattn_tensor &to, const Run &run) {
    const int64_t element = storage_bytes(to.dtype, 1);
    for (int64_t h = 0; h < to.extent[1]; ++h) {
        copy_rows(address(from, run.sequence, h, run.row), from.stride[2] * element, address(to, run.page, h, run.at),
                  to.stride[2] * element, to.extent[3] * element, run.rows);
    }
}

void turn_run(const Rope &rope, const hattn_tensor &keys, const Run &run, int32_t worker) {
    for (int64_t i = 0; i < run.rows; ++i) {
        rope.move_to(run.sequence, run.row + i, worker);
        for (int64_t h = 0; h < keys.extent[1]; ++h) {
            rope.turn(element<float>(keys, run.page, h, run.at + i), worker);
        }
    }
}

// Converts rows of one side on their way into the cache, through float32.
class RowWriter {
public:
    RowWriter(const hattn_kv_cache &cache, const CachedSide &side, const hattn_tensor &from, int32_t worker)
        : cache_(cache),
          side_(side),
          from_(from),
          worker_(worker),
          dim_(from.extent[3]),
          floats_(reinterpret_cast<float *>(static_cast<char *>(cache.append_memory->data()) +
                                            worker * cache.worker_bytes())),
          scratch_(floats_ + cache.row_floats(), static_cast<size_t>(quantize_scratch_bytes(dim_))) {}

    void write(const Run &run, const Rope *rope) {
        // Turning is prepared once per row, for all heads.
        const int64_t step = rope ? 1 : run.rows;
        for (int64_t i = 0; i < run.rows; i += step) {
            if (rope) {
                rope->move_to(run.sequence, run.row + i, worker_);
            }
            for (int64_t h = 0; h < from_.extent[1]; ++h) {
                const RowBlock block = load(run, h, i, step, rope != nullptr);
                if (rope) {
                    rope->turn(floats_, worker_);
                }
                store(block, {run.sequence, run.row + i, step, run.page, run.at + i}, h);
            }
        }
    }

private:
    // Leaves rows in float32 at loaded_; `own`: in memory that may be written to.
    RowBlock load(const Run &run, int64_t head, int64_t i, int64_t rows, bool own) {
        const void *given = address(from_, run.sequence, head, run.row + i);
        const RowBlock dense = dense_rows(dim_, rows, 1);
        const RowBlock strided = {dim_, rows, 1, from_.stride[2], 0};
        loaded_ = floats_;
        if (from_.dtype != HATTN_FLOAT32) {
            widen(*cache_.kernels.widen, scratch_, from_.dtype, given, strided, floats_, dense);
            return dense;
        }
        if (own) {
            std::memcpy(floats_, given, static_cast<size_t>(dim_) * sizeof(float));  // a single row
            return dense;
        }
        loaded_ = static_cast<const float *>(given);
        return strided;
    }

    void store(const RowBlock &block, const Run &run, int64_t head) {
        const hattn_tensor &rows = side_.rows;
        void *to = address(rows, run.page, head, run.at);
        if (is_quantized(rows.dtype)) {
            quantize(cache_.kernels.quantize, scratch_, loaded_, block, quantized(run, head));
        } else if (rows.dtype == HATTN_FLOAT32) {
            copy_rows(loaded_, block.row_stride * 4, to, rows.stride[2] * 4, dim_ * 4, run.rows);
        } else {
            narrow(*cache_.kernels.narrow, scratch_, rows.dtype, loaded_, block, to,
                   {dim_, run.rows, 1, rows.stride[2], 0});
        }
    }

    QuantizedRows quantized(const Run &run, int64_t head) const {
        const hattn_tensor &rows = side_.rows, &scales = side_.scales;
        QuantizedRows to{rows.dtype, address(rows, run.page, head, run.at), rows.stride[2], nullptr, 0, nullptr, 0};
        if (side_.computes_scales) {
            to.blocks = element<float>(scales, run.page, head, run.at);
            to.block_row_stride = scales.stride[2];
        } else {
            to.channels = element<const float>(scales, 0, scales.extent[1] > 1 ? head : 0, 0);
            to.channel_stride = scales.extent[3] > 1 ? 1 : 0;
        }
        return to;
    }

    const hattn_kv_cache &cache_;
    const CachedSide &side_;
    const hattn_tensor &from_;
    const int32_t worker_;
    const int64_t dim_;
    float *floats_;
    ScratchArena scratch_;
    const float *loaded_ = nullptr;
};

void write_run(const hattn_kv_cache &cache, const CachedSide &side, const hattn_tensor &from, const Run &run,
               const Rope *rope, int32_t worker) {
    const bool floats = from.dtype == HATTN_FLOAT32;
    if (from.dtype != side.rows.dtype || (rope && !floats)) {
        RowWriter(cache, side, from, worker).write(run, rope);
        return;
    }
    copy_run(from, side.rows, run);
    if (rope) {
        turn_run(*rope, side.rows, run, worker);
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
                const Rope *rope) {
    int64_t most = 0;  // the tensors may claim more rows than any sequence takes
    for (int64_t b = 0; b < cache.desc.batch; ++b) {
        most = std::max(most, added.of(b));
    }
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

void copy_pages(const hattn_kv_cache &cache, std::span<const PageCopy> copies) {
    for (const PageCopy &copy : copies) {
        for (const CachedSide *side : {&cache.keys, &cache.values}) {
            copy_page(side->rows, copy);
            if (side->computes_scales) {
                copy_page(side->scales, copy);
            }
        }
    }
}

// Pages that were taken for rows which could not be written are given back.
void write_on_device(hattn_kv_cache &cache, const hattn_tensor &k, const hattn_tensor &v, const RowCounts &added,
                     std::span<const PageCopy> copies, const Rope *rope) {
    try {
        copy_on_device(cache, copies);
        append_on_device(cache, k, v, added, rope);
    } catch (...) {
        for (int64_t b = 0; cache.paged() && b < cache.desc.batch; ++b) {
            const int64_t length = cache.lengths[static_cast<size_t>(b)];
            cache.pages.shrink(b, length + added.of(b), length);
        }
        throw;
    }
}

void append(hattn_kv_cache &cache, const hattn_tensor &k, const hattn_tensor &v, const RowCounts &added,
            const hattn_rope *given) {
    check_appended(cache, k, v, added.ends != nullptr);
    if (added.ends) {
        check_ends(added.ends, "cu_seqlens", cache.desc.batch, added.rows, "k");
    }
    check_counts(cache, added);
    std::optional<Rope> rope;
    if (given) {
        rope.emplace(*given, cache.desc.key_dim, cache.desc.batch, added, cache.lengths.data(), "rope",
                     cache.rope_memory->data());
    }
    std::span<const PageCopy> copies;
    if (cache.paged()) {
        copies = cache.pages.extend(cache.lengths, added);
    }
    if (cache.device) {
        write_on_device(cache, k, v, added, copies, rope ? &*rope : nullptr);
    } else {
        copy_pages(cache, copies);
        write_rows(cache, k, v, added, rope ? &*rope : nullptr);
    }
    for (size_t b = 0; b < cache.lengths.size(); ++b) {
        cache.lengths[b] += static_cast<int32_t>(added.of(static_cast<int64_t>(b)));
        if (cache.ring()) {
            cache.kept_from[b] =
                std::max(cache.kept_from[b], cache.lengths[b] - static_cast<int32_t>(cache.page_rows()));
        }
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
