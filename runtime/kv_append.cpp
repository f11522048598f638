// Appending rows to a KV cache, in storage of any kind.
#include <algorithm>
#include <cstring>
#include <optional>

#include "checked.h"
#include "kv_cache.h"
#include "parallel.h"
#include "problem.h"
#include "rope.h"
#include "row_counts.h"
#include "status.h"
#include "structs.h"
#include "tensor.h"

namespace hattn {

namespace {

constexpr int64_t kRowsPerTask = 16;
constexpr int64_t kSerialElements = 65536;  // fewer are written by the caller's thread

void check_appended(const hattn_kv_cache &cache, const hattn_tensor &k, const hattn_tensor &v) {
    const struct {
        const hattn_tensor &tensor;
        const char *name;
        const hattn_tensor &storage;
    } sides[] = {{k, "k", cache.keys}, {v, "v", cache.values}};
    for (const auto &[tensor, name, storage] : sides) {
        check_tensor(tensor, name, cache.desc.dtype);
        check_tensor_extent(tensor, name, kKeyDimensions, 0, cache.desc.batch, "the cache's batch");
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

void copy_rows(const float *from, int64_t from_stride, float *to, int64_t dim, int64_t rows) {
    const auto row_bytes = static_cast<size_t>(dim) * sizeof(float);
    if (from_stride == dim) {
        std::memcpy(to, from, static_cast<size_t>(rows) * row_bytes);
        return;
    }
    for (int64_t i = 0; i < rows; ++i) {
        std::memcpy(to + i * dim, from + i * from_stride, row_bytes);
    }
}

void copy_page(const hattn_tensor &side, const PageCopy &copy) {
    for (int64_t h = 0; h < side.extent[1]; ++h) {
        copy_rows(element<const float>(side, copy.from, h, 0), side.stride[2], element<float>(side, copy.to, h, 0),
                  side.extent[3], copy.rows);
    }
}

// Rows of one sequence that lie one after the other in a page.
struct Run {
    int64_t sequence, row, rows;  // of the tensors appended
    int64_t page, at;             // of the storage
};

void write_run(const hattn_tensor &from, const hattn_tensor &to, const Run &run) {
    for (int64_t h = 0; h < to.extent[1]; ++h) {
        copy_rows(element<const float>(from, run.sequence, h, run.row), from.stride[2],
                  element<float>(to, run.page, h, run.at), to.extent[3], run.rows);
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

void write_rows(const hattn_kv_cache &cache, const hattn_tensor &k, const hattn_tensor &v, const RowCounts &added,
                const Rope *rope) {
    int64_t most = 0;  // the tensors may claim more rows than any sequence takes
    for (int64_t b = 0; b < cache.desc.batch; ++b) {
        most = std::max(most, added.of(b));
    }
    const int64_t blocks = ceil_div(most, kRowsPerTask);
    const auto write_block = [&](int64_t index, int32_t worker) {
        Run run{};
        run.sequence = index / blocks;
        const int64_t count = added.of(run.sequence);
        const int64_t begin = index % blocks * kRowsPerTask, end = std::min(begin + kRowsPerTask, count);
        // A ring keeps the last rows only.
        run.row = std::max(begin, cache.ring() ? count - cache.page_rows() : 0);
        for (; run.row < end; run.row += run.rows) {
            const int64_t position = cache.lengths[static_cast<size_t>(run.sequence)] + run.row;
            run.page = cache.page_of(run.sequence, position);
            run.at = cache.row_of(position);
            run.rows = std::min(end - run.row, cache.page_rows() - run.at);
            write_run(k, cache.keys, run);
            write_run(v, cache.values, run);
            if (rope) {
                turn_run(*rope, cache.keys, run, worker);
            }
        }
    };
    const int64_t row = cache.desc.kv_heads * (cache.keys.extent[3] + cache.values.extent[3]) * (rope ? 2 : 1);
    const bool serial = cache.desc.batch * std::min(most, kSerialElements) * row < kSerialElements;
    for_each_task(cache.context->executor, cache.desc.batch * blocks, serial, write_block);
}

void append(hattn_kv_cache &cache, const hattn_tensor &k, const hattn_tensor &v, const int32_t *lengths,
            const hattn_rope *given) {
    check_appended(cache, k, v);
    const RowCounts added{lengths, k.extent[2]};
    check_counts(cache, added);
    std::optional<Rope> rope;
    if (given) {
        rope.emplace(*given, cache.desc.key_dim, cache.desc.batch, added, cache.lengths.data(),
                     cache.rope_memory->data());
    }
    if (cache.paged()) {
        for (const PageCopy &copy : cache.pages.extend(cache.lengths, added)) {
            copy_page(cache.keys, copy);
            copy_page(cache.values, copy);
        }
    }
    write_rows(cache, k, v, added, rope ? &*rope : nullptr);
    for (size_t b = 0; b < cache.lengths.size(); ++b) {
        cache.lengths[b] += static_cast<int32_t>(added.of(static_cast<int64_t>(b)));
        if (cache.ring()) {
            cache.kept_from[b] =
                std::max(cache.kept_from[b], cache.lengths[b] - static_cast<int32_t>(cache.page_rows()));
        }
    }
}

}  // namespace

}  // namespace hattn

hattn_status hattn_kv_append(hattn_kv_cache *cache, const hattn_tensor *k, const hattn_tensor *v,
                             const int32_t *lengths) {
    return hattn_kv_append_rope(cache, k, v, lengths, nullptr);
}

hattn_status hattn_kv_append_rope(hattn_kv_cache *cache, const hattn_tensor *k, const hattn_tensor *v,
                                  const int32_t *lengths, const hattn_rope *rope) {
    using namespace hattn;
    return guarded([&] {
        require(cache, HATTN_INVALID_ARGUMENT, "cache: is null");
        const hattn_tensor keys = read_struct(k, "k");
        const hattn_tensor values = read_struct(v, "v");
        if (rope) {
            const hattn_rope given = read_struct(rope, "rope");
            append(*cache, keys, values, lengths, &given);
        } else {
            append(*cache, keys, values, lengths, nullptr);
        }
    });
}
