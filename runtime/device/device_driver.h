// What the library asks of a device's driver beside what Halide's runtime does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "hattn/hattn.h"

namespace hattn {

struct DeviceQueue;

// What tells one device from another, for tunings and for people.
struct DeviceIdentity {
    std::string name;
    std::string capability;  // of CUDA its compute capability, "9.0"; of OpenCL its version
    std::string driver;
    int64_t compute_units = 0, memory_bytes = 0;
};

class DeviceDriver {
public:
    virtual ~DeviceDriver() = default;
    // Why there is no such device that runs our kernels; "" if there is.
    virtual std::string unusable(int32_t device_id) const = 0;
    virtual int32_t count() const = 0;
    virtual DeviceIdentity identity(int32_t device_id) const = 0;
    // The most that a work group may take.
    virtual int64_t shared_bytes(int32_t device_id) const = 0;

    // These throw StatusError.
    // Finds the context and queue of `given`, or the library's own if it is null.
    virtual void open(DeviceQueue &queue, const hattn_queue *given) const = 0;
    // Copies from the host once the queue gets there, which may be after the call: `host` has to stay.
    virtual void upload(const DeviceQueue &queue, uint64_t memory, const void *host, size_t bytes) const = 0;
    virtual void wait(const DeviceQueue &queue) const = 0;

    // Throws for memory of the caller's, the argument `name`, that is not the queue's or has not so many bytes, as far
    // as the driver tells.
    virtual void check_memory(const DeviceQueue &, uint64_t /*memory*/, uint64_t /*bytes*/,
                              const char * /*name*/) const {}
    // Memory of the queue's context, until it is released, as tensors hold it.
    virtual uint64_t allocate(const DeviceQueue &queue, size_t bytes) const = 0;
    virtual void release(const DeviceQueue &queue, uint64_t memory) const = 0;
    // Memory of the host that copies to the device read without a detour, if the driver has such.
    virtual void *allocate_host(const DeviceQueue &queue, size_t bytes) const = 0;
    virtual void release_host(const DeviceQueue &queue, void *memory) const = 0;
    // Puts an event behind what is in the queue. `event`: one of this queue's that nobody waits for any more, or null;
    // it is used again or replaced.
    virtual void mark(const DeviceQueue &queue, void *&event) const = 0;
    // Returns once the queue has got to the event.
    virtual void wait_for(const DeviceQueue &queue, void *event) const = 0;
    virtual void release_event(const DeviceQueue &queue, void *event) const = 0;
    // A part of memory as memory of its own, until it is released.
    virtual uint64_t part(void *memory, size_t offset, size_t bytes) const = 0;
    virtual void release_part(uint64_t part) const = 0;
    // Of parts that are addresses, so that neighbours can be copied together; 0: they are not.
    virtual size_t part_alignment() const {
        return 0;
    }
};

const DeviceDriver &device_driver(hattn_device device);

// One of each.
const DeviceDriver &cuda_driver();
const DeviceDriver &opencl_driver();

}  // namespace hattn
