// Memory of a device, as an application takes it from the driver, for the library's own queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "hattn/hattn.h"

namespace hattn::autotune {

class DeviceMemory {
public:
    virtual ~DeviceMemory() = default;
    // These wait. They throw std::runtime_error, as does make_device_memory().
    virtual void write(const void *from, size_t bytes) = 0;
    virtual void read(void *to, size_t bytes) = 0;
    // As tensors and workspaces have it.
    virtual void *handle() const = 0;
};

// At least a byte.
std::unique_ptr<DeviceMemory> make_device_memory(hattn_device device, int32_t device_id, size_t bytes);

}  // namespace hattn::autotune
