// What a KV cache on a device has there: memory for its rows, and a queue in which rows are written.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device_queue.h"

namespace hattn {

struct DeviceRows;

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

    // Memory of the device for a tensor's elements, which is the tensor's from then on. If the tensor had data, on the
    // host and dense, it is copied.
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

    // One side's storage.
    struct Side {
        const hattn_tensor &rows, &scales;
        bool computes_scales;  // of every key, else `scales` are given; of integers alone
    };

    // Both wait until rows are there, and throw StatusError. Rows of `from`, which is of the device, or of the host,
    // from where it is copied first, are converted to the type of `to`; angles may be null.
    void append(const hattn_tensor &from, const char *name, const Side &to, std::span<const RowRun> runs,
                const RowAngles *angles);
    // From one place of the storage to another.
    void copy(const Side &side, std::span<const RowRun> runs);

private:
    void quantize(const DeviceRows &from, const Side &to, std::span<const RowRun> runs, const RowAngles *angles);

    DeviceQueue queue_;
};

// Bytes of a row of a cache on a device are whole multiples of it, so that rows of any type are copied as words.
inline constexpr int64_t kWordBytes = 4;

}  // namespace hattn
