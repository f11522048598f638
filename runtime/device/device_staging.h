// What a cache on a device writes its rows with: tables, on the host and on the device, that stay from one call to the
// next, so that a call takes no memory and waits for nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>

#include "device_queue.h"

namespace hattn {

// What a call needs at most.
struct StagingBytes {
    size_t host = 0, device = 0;

    // On the host, from where it is copied.
    void add_table(int64_t bytes);
    void add_on_host(int64_t bytes);
    void add_on_device(int64_t bytes);
};

// The queue keeps its order, so that there is one memory on the device for all calls. Of those on the host, which a
// copy reads some time after its call, several take turns.
class DeviceStaging {
public:
    explicit DeviceStaging(DeviceQueue &queue) : queue_(queue) {}
    ~DeviceStaging();  // waits
    DeviceStaging(const DeviceStaging &) = delete;
    DeviceStaging &operator=(const DeviceStaging &) = delete;

    bool in_flight() const {
        return in_flight_;
    }
    // Until all calls are done.
    void wait();

private:
    friend class StagedCall;

    struct Slot {
        void *memory = nullptr, *event = nullptr;
        size_t size = 0;
        bool is_read = false;  // perhaps, until the event
    };
    Slot &free_slot(size_t bytes);
    void provide_device_memory(size_t bytes);

    static constexpr size_t kSlots = HATTN_KV_CALLS_UNDER_WAY;

    DeviceQueue &queue_;
    std::array<Slot, kSlots> slots_;
    size_t next_ = 0;
    uint64_t memory_ = 0;
    size_t size_ = 0;
    std::atomic<bool> in_flight_ = false;  // threads may attend at once
};

// A call: the queue's workspace is the memory on the device for as long as this lives. If it ends without finish(),
// nothing of it is left in the queue.
class StagedCall {
public:
    StagedCall(DeviceStaging &staging, const StagingBytes &bytes);
    ~StagedCall();
    StagedCall(const StagedCall &) = delete;
    StagedCall &operator=(const StagedCall &) = delete;

    std::pmr::memory_resource *host() {
        return &host_;
    }
    // waits: until all is done, as it also does if the call took other memory on the device.
    void finish(bool waits);

private:
    DeviceStaging &staging_;
    DeviceStaging::Slot &slot_;
    std::pmr::monotonic_buffer_resource host_;
    bool finished_ = false;
};

}  // namespace hattn
