// How long a device takes for what is put into its queue.
#pragma once

#include <cstdint>
#include <functional>

#include "hattn/hattn.h"

namespace hattn::bench {

// Of the library's own queue, which on CUDA is the default stream of the primary context.
class DeviceClock {
public:
    // Throws std::runtime_error where there is no such device.
    DeviceClock(hattn_device device, int32_t device_id);

    // Seconds between two CUDA events around what `enqueue` puts into the queue; where the driver has no events, as
    // those of OpenCL, on the wall from an empty queue to an empty queue. Waits. Throws std::runtime_error.
    double seconds(const std::function<void()> &enqueue) const;
    bool has_events() const {
        return has_events_;
    }
    const hattn_queue &queue() const {
        return queue_;
    }
    hattn_device device() const {
        return device_;
    }

private:
    void wait() const;
    double seconds_by_events(const std::function<void()> &enqueue) const;

    hattn_device device_;
    hattn_queue queue_;
    bool has_events_;
};

}  // namespace hattn::bench
