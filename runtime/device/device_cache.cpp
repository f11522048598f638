#include "device_cache.h"

#include <algorithm>
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

// A cache's own rows, padding included.
hattn_tensor padded_words(hattn_tensor tensor) {
    tensor.extent[3] = tensor.stride[2];
    const std::optional<hattn_tensor> words = as_words(tensor);
    require(words.has_value(), HATTN_INTERNAL_ERROR, "rows of a cache on a device are no whole words");
    return *words;
}

}  // namespace

DeviceCache::DeviceCache(hattn_device device, int32_t device_id, const hattn_queue *given)
    : queue_(usable_device(device, device_id), device_id, given) {}

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
    cache_.queue_.driver.release(cache_.queue_, handle_);
}

void DeviceCache::append(const hattn_tensor &from, const char *name, const Side &to, std::span<const RowRun> runs,
                         const RowAngles *angles) {
    if (runs.empty()) {
        return;
    }
    discard_device_error();
    const bool same = !angles && from.dtype == to.rows.dtype;
    const std::optional<hattn_tensor> from_words = same ? as_words(from) : std::nullopt;
    const std::optional<hattn_tensor> to_words = from_words ? as_words(to.rows) : std::nullopt;
    const DeviceRows rows(queue_, to_words ? *from_words : from, name);
    if (is_quantized(to.rows.dtype)) {
        quantize(rows, to, runs, angles);
        return;
    }
    const DeviceRows target(queue_, to_words ? *to_words : to.rows, "cache");
    const RowConversion conversion(queue_, rows, target, runs, angles);
    queue_.driver.wait(queue_);
}

void DeviceCache::quantize(const DeviceRows &from, const Side &to, std::span<const RowRun> runs,
                           const RowAngles *angles) {
    const DeviceRows target(queue_, to.rows, "cache"), scales(queue_, to.scales, "cache");
    if (from.tensor.dtype == HATTN_FLOAT32 && !angles) {
        const RowQuantization quantization(queue_, from, target, scales, to.computes_scales, runs);
        queue_.driver.wait(queue_);
        return;
    }
    // First into float32, rows of all runs one after the other.
    std::vector<RowRun> before(runs.begin(), runs.end()), after = before;
    int64_t count = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
        before[i].to = after[i].from = 0;
        before[i].to_row = after[i].from_row = count;
        count += runs[i].rows;
    }
    const int64_t heads = to.rows.extent[1], dim = to.rows.extent[3];
    hattn_tensor floats = HATTN_TENSOR_INIT;
    const int64_t extent[4] = {1, heads, count, dim}, stride[4] = {heads * count * dim, count * dim, dim, 1};
    std::copy(extent, extent + 4, floats.extent);
    std::copy(stride, stride + 4, floats.stride);
    const DeviceRows wide(queue_, floats, "rows to be quantised");
    const RowConversion conversion(queue_, from, wide, before, angles);
    const RowQuantization quantization(queue_, wide, target, scales, to.computes_scales, after);
    queue_.driver.wait(queue_);
}

void DeviceCache::copy(const Side &side, std::span<const RowRun> runs) {
    if (runs.empty()) {
        return;
    }
    discard_device_error();
    const DeviceRows rows(queue_, padded_words(side.rows), "cache");
    const RowConversion of_rows(queue_, rows, rows, runs, nullptr);
    if (!side.computes_scales) {
        queue_.driver.wait(queue_);
        return;
    }
    const DeviceRows scales(queue_, padded_words(side.scales), "cache");
    const RowConversion of_scales(queue_, scales, scales, runs, nullptr);
    queue_.driver.wait(queue_);
}

}  // namespace hattn
