#include "device_cache.h"

#include <algorithm>
#include <array>
#include <memory_resource>
#include <optional>
#include <vector>

#include "device_append.h"
#include "runtime/checked.h"

namespace hattn {

namespace {

int64_t storage_size(const hattn_tensor &tensor) {
    return std::max<int64_t>(storage_bytes(tensor.dtype, tensor.extent[0] * tensor.stride[0]), 1);
}

// The same memory as words, which are copied bit by bit, if it consists of whole ones.
std::optional<hattn_tensor> as_words(hattn_tensor tensor) {
    const int64_t per_word = kWordBytes * 8 / dtype_bits(tensor.dtype);
    bool whole = tensor.extent[3] % per_word == 0 && tensor.byte_offset % kWordBytes == 0 &&
                 reinterpret_cast<uintptr_t>(tensor.data) % kWordBytes == 0;
    for (int d = 0; d < 3; ++d) {
        whole = whole && tensor.stride[d] % per_word == 0;
        tensor.stride[d] /= per_word;
    }
    tensor.extent[3] /= per_word;
    tensor.dtype = HATTN_FLOAT32;
    return whole ? std::optional(tensor) : std::nullopt;
}

bool are_copied_bit_by_bit(const DeviceCache::Added &side) {
    return !side.angles && side.from.dtype == side.to.rows.dtype && as_words(side.from) && as_words(side.to.rows);
}

hattn_tensor converted(const hattn_tensor &tensor, bool bit_by_bit) {
    return bit_by_bit ? *as_words(tensor) : tensor;
}

bool is_widened_first(const DeviceCache::Added &side) {
    return is_quantized(side.to.rows.dtype) && (side.from.dtype != HATTN_FLOAT32 || side.angles);
}

// A cache's own rows, padding included.
hattn_tensor padded_words(hattn_tensor tensor) {
    tensor.extent[3] = tensor.stride[2];
    const std::optional<hattn_tensor> words = as_words(tensor);
    require(words.has_value(), HATTN_INTERNAL_ERROR, "rows of a cache on a device are no whole words");
    return *words;
}

constexpr size_t kSides = 2;  // keys and values

// The launches of one side of an append. Lives until the queue is done if it took memory of its own on the device.
class AddedRows {
public:
    AddedRows(DeviceQueue &queue, const DeviceCache::Added &side, std::span<const RowRun> runs,
              std::pmr::memory_resource *host)
        : bit_by_bit_(are_copied_bit_by_bit(side)),
          from_(queue, converted(side.from, bit_by_bit_), side.name),
          to_(queue, converted(side.to.rows, bit_by_bit_), "cache") {
        if (!is_quantized(side.to.rows.dtype)) {
            conversion_.emplace(queue, from_, to_, runs, side.angles, host);
            return;
        }
        scales_.emplace(queue, side.to.scales, "cache");
        if (is_widened_first(side)) {
            wide_.emplace(queue, wide_rows(to_.tensor.extent[1], side.to.rows.extent[3], runs), "rows to be quantised");
            conversion_.emplace(queue, from_, *wide_, wide_runs(runs, WideEnd::kWritten, host), side.angles, host);
            quantization_.emplace(queue, *wide_, to_, *scales_, side.to.computes_scales,
                                  wide_runs(runs, WideEnd::kRead, host), host);
        } else {
            quantization_.emplace(queue, from_, to_, *scales_, side.to.computes_scales, runs, host);
        }
    }

    // What that needs.
    static void add_bytes(const DeviceQueue &queue, const DeviceCache::Added &side, std::span<const RowRun> runs,
                          StagingBytes &bytes) {
        const int64_t heads = side.to.rows.extent[1];
        if (!is_quantized(side.to.rows.dtype) || is_widened_first(side)) {
            RowConversion::add_bytes(queue, heads, runs, side.angles, bytes);
        }
        if (is_quantized(side.to.rows.dtype)) {
            RowQuantization::add_bytes(queue, heads, runs, bytes);
        }
        if (is_widened_first(side)) {
            add_wide_bytes(heads, side.to.rows.extent[3], runs, bytes);
        }
    }

private:
    const bool bit_by_bit_;
    const DeviceRows from_, to_;
    std::optional<DeviceRows> scales_, wide_;
    std::optional<RowConversion> conversion_;
    std::optional<RowQuantization> quantization_;
};

// Those of rows or scales of one side that are copied to another place of it.
struct CopiedRows {
    CopiedRows(DeviceQueue &queue, const hattn_tensor &tensor, std::span<const RowRun> runs,
               std::pmr::memory_resource *host)
        : rows(queue, padded_words(tensor), "cache"), conversion(queue, rows, rows, runs, nullptr, host) {}

    const DeviceRows rows;
    const RowConversion conversion;
};

}  // namespace

DeviceCache::DeviceCache(hattn_device device, int32_t device_id, const hattn_queue *given)
    : queue_(usable_device(device, device_id), device_id, given), is_given_(given != nullptr) {}

DeviceCache::Memory::Memory(DeviceCache &cache, hattn_tensor &tensor) : cache_(cache) {
    DeviceQueue &queue = cache.queue_;
    const auto bytes = static_cast<size_t>(storage_size(tensor));
    handle_ = queue.driver.allocate(queue, bytes);
    if (tensor.data) {
        try {
            queue.driver.upload(queue, handle_, tensor.data, bytes);
            queue.driver.wait(queue);
        } catch (...) {
            queue.driver.release(queue, handle_);
            throw;
        }
    }
    tensor.data = reinterpret_cast<void *>(handle_);
    tensor.device = queue.target.device;
    tensor.device_id = queue.device_id;
}

DeviceCache::Memory::~Memory() {
    if (cache_.staging_.in_flight()) {
        cache_.queue_.drain();
    }
    cache_.queue_.driver.release(cache_.queue_, handle_);
}

void DeviceCache::append(std::span<const Added> sides, std::span<const RowRun> runs) {
    if (runs.empty()) {
        return;
    }
    StagingBytes bytes;
    bool of_host = false;
    for (const Added &side : sides) {
        AddedRows::add_bytes(queue_, side, runs, bytes);
        of_host = of_host || side.from.device == HATTN_CPU;
    }
    discard_device_error();
    StagedCall call(staging_, bytes);
    std::array<std::optional<AddedRows>, kSides> added;
    for (size_t i = 0; i < sides.size(); ++i) {
        added[i].emplace(queue_, sides[i], runs, call.host());
    }
    call.finish(of_host);
}

void DeviceCache::copy(std::span<const Side> sides, std::span<const RowRun> runs) {
    if (runs.empty()) {
        return;
    }
    StagingBytes bytes;
    for (const Side &side : sides) {
        for (int i = 0; i < (side.computes_scales ? 2 : 1); ++i) {
            RowConversion::add_bytes(queue_, side.rows.extent[1], runs, nullptr, bytes);
        }
    }
    discard_device_error();
    StagedCall call(staging_, bytes);
    std::array<std::optional<CopiedRows>, 2 * kSides> copied;
    size_t next = 0;
    for (const Side &side : sides) {
        copied[next++].emplace(queue_, side.rows, runs, call.host());
        if (side.computes_scales) {
            copied[next++].emplace(queue_, side.scales, runs, call.host());
        }
    }
    call.finish(false);
}

void DeviceCache::finish_before(const hattn_queue *given) {
    if (!staging_.in_flight()) {
        return;
    }
    const DeviceQueue other(queue_.target, queue_.device_id, given);
    if (other.queue != queue_.queue || other.context != queue_.context) {
        staging_.wait();
    }
}

}  // namespace hattn
