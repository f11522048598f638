// What a KV cache on a device has there: memory for its rows, and a queue in which rows are written.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device_queue.h"

namespace hattn {

// Rows, of every head, that lie one after the other in both tensors.
struct RowRun {
    int64_t from, from_row;  // sequence or page of the tensor that is read
    int64_t to, to_row;      // and of the one that is written
    int64_t rows;
    int64_t angles;  // of the first row, among RowAngles
};

// What rows are turned by (generators/append.h): [rows, pairs] each.
struct RowAngles {
    int64_t pairs = 0;
    bool interleaved = false;
    std::vector<float> cosines, sines;
};

class DeviceCache {
public:
    // Work goes to `given`, or to the library's own queue if it is null. Throws StatusError without such a device.
    DeviceCache(hattn_device device, int32_t device_id, const hattn_queue *given);
    DeviceCache(const DeviceCache &) = delete;
    DeviceCache &operator=(const DeviceCache &) = delete;

    // Memory of the device for a tensor's elements, which is the tensor's from then on.
    class Memory {
    public:
        Memory(DeviceCache &cache, hattn_tensor &tensor);
        ~Memory();
        Memory(const Memory &) = delete;
        Memory &operator=(const Memory &) = delete;

    private:
        DeviceCache &cache_;
        uint64_t handle_;
    };

    // Writes rows of float32 and waits until they are there. `from` is of the device, or of the host, from where it is
    // copied first; angles may be null. Throws StatusError.
    void write(const hattn_tensor &from, const char *name, const hattn_tensor &to, std::span<const RowRun> runs,
               const RowAngles *angles);

private:
    DeviceQueue queue_;
    const DeviceKernelInfo &append_;
};

}  // namespace hattn
