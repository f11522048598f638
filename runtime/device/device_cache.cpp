#include "device_cache.h"

#include <algorithm>

#include "device_launch.h"
#include "runtime/checked.h"
#include "unit_record.h"

namespace hattn {

namespace {

constexpr float kNoAngle = 0.0f;

const DeviceKernelInfo &append_kernel(const DeviceTargetInfo &target) {
    const auto kernels = device_table().kernels;
    const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const DeviceKernelInfo &kernel) {
        return kernel.kind == KernelKind::kAppend && std::string_view(kernel.target) == target.name;
    });
    require(found != kernels.end(), HATTN_INTERNAL_ERROR, "no append kernel for ", target.name);
    return *found;
}

// Nothing is left in the queue that reads memory of the host, also after a failure.
class Finished {
public:
    explicit Finished(const DeviceQueue &queue) : queue_(queue) {}
    ~Finished() {
        if (!waited_) {
            queue_.drain();
        }
    }
    void wait() {
        queue_.driver.wait(queue_);
        waited_ = true;
    }

private:
    const DeviceQueue &queue_;
    bool waited_ = false;
};

// A launch's units: rows of one head.
std::vector<AppendRecord> records_of(const DeviceMemory &from_memory, const hattn_tensor &from,
                                     const DeviceMemory &to_memory, const hattn_tensor &to,
                                     std::span<const RowRun> runs, int64_t pairs, int64_t tile_rows) {
    std::vector<AppendRecord> records;
    for (const RowRun &run : runs) {
        for (int64_t h = 0; h < to.extent[1]; ++h) {
            for (int64_t i = 0; i < run.rows; i += tile_rows) {
                records.push_back({static_cast<int32_t>(from_memory.offset(from, run.from, h, run.from_row + i)),
                                   static_cast<int32_t>((run.angles + i) * pairs),
                                   static_cast<int32_t>(to_memory.offset(to, run.to, h, run.to_row + i)),
                                   static_cast<int32_t>(std::min(tile_rows, run.rows - i))});
            }
        }
    }
    return records;
}

}  // namespace

DeviceCache::DeviceCache(hattn_device device, int32_t device_id, const hattn_queue *given)
    : queue_(usable_device(device, device_id), device_id, given), append_(append_kernel(queue_.target)) {}

DeviceCache::Memory::Memory(DeviceCache &cache, hattn_tensor &tensor) : cache_(cache) {
    const int64_t bytes = std::max<int64_t>(storage_bytes(tensor.dtype, tensor.extent[0] * tensor.stride[0]), 1);
    handle_ = cache.queue_.driver.allocate(cache.queue_, static_cast<size_t>(bytes));
    tensor.data = reinterpret_cast<void *>(handle_);
    tensor.device = cache.queue_.target.device;
    tensor.device_id = cache.queue_.device_id;
}

DeviceCache::Memory::~Memory() {
    cache_.queue_.driver.release(cache_.queue_, handle_);
}

void DeviceCache::write(const hattn_tensor &from, const char *name, const hattn_tensor &to,
                        std::span<const RowRun> runs, const RowAngles *angles) {
    if (runs.empty()) {
        return;
    }
    discard_device_error();
    DeviceMemory source(queue_, from, name), target(queue_, to, "cache");
    const int64_t pairs = angles ? angles->pairs : 0, width = std::max<int64_t>(pairs, 1);
    const int64_t count = angles ? static_cast<int64_t>(angles->cosines.size()) : 1;
    DeviceMemory cosines(queue_, angles ? angles->cosines.data() : &kNoAngle, count, "rope");
    DeviceMemory sines(queue_, angles ? angles->sines.data() : &kNoAngle, count, "rope");
    const std::vector<AppendRecord> records = records_of(source, from, target, to, runs, pairs, append_.tile.rows);
    Finished finished(queue_);
    for (DeviceMemory *input : {&source, &cosines, &sines}) {
        input->upload();
    }
    UnitTable table(queue_, std::span<const AppendRecord>(records));
    DeviceView rows(source, {{from.extent[3], 1}, {1, from.stride[2]}});
    DeviceView cosine_rows(cosines, {{width, 1}, {1, pairs}}), sine_rows(sines, {{width, 1}, {1, pairs}});
    DeviceView output(target, {{to.extent[3], 1}, {1, to.stride[2]}});
    auto pair_count = static_cast<int32_t>(pairs), interleaved = static_cast<int32_t>(angles && angles->interleaved);
    launch(queue_, append_, table, rows, cosine_rows, sine_rows, &pair_count, &interleaved, output);
    finished.wait();
}

}  // namespace hattn
