// What a KV cache on a device has there: memory for its rows, and a queue in which rows are written.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device_queue.h"
#include "device_staging.h"
#include "device_turn.h"
#include "row_runs.h"

namespace hattn {

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
    // Rows for it: on the device, or on the host, from where they are copied first. angles may be null.
    struct Added {
        const hattn_tensor &from;
        const char *name;
        Side to;
        const RowAngles *angles;
    };

    // Both put their work into the queue, and throw StatusError. Rows are converted to the type of the storage; those
    // of the host have been read when the call returns.
    void append(std::span<const Added> sides, std::span<const RowRun> runs);
    // From one place of the storage to another.
    void copy(std::span<const Side> sides, std::span<const RowRun> runs);

    // Waits for both, unless what is put into the given queue, or into the library's own if it is null, comes after
    // them.
    void finish_before(const hattn_queue *given);

    // Where callers put runs and angles: their memory is kept.
    std::vector<RowRun> &no_runs() {
        runs_.clear();
        return runs_;
    }
    RowAngles &angles() {
        return angles_;
    }
    // For rows of other tensors, which are turned in the queue, and then the wait for results in the library's own.
    DeviceWork work() {
        return {queue_, staging_, runs_, angles_};
    }
    void finish_work() {
        if (!is_given_) {
            staging_.wait();
        }
    }

private:
    DeviceQueue queue_;
    const bool is_given_;  // the queue, else it is the library's
    DeviceStaging staging_{queue_};
    std::vector<RowRun> runs_;
    RowAngles angles_;
};

// Bytes of a row of a cache on a device are whole multiples of it, so that rows of any type are copied as words.
inline constexpr int64_t kWordBytes = 4;

}  // namespace hattn
