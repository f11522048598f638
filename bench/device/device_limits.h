// What a device can do at best, as far as its driver tells without kernels of our own.
#pragma once

#include <cstddef>

#include <nlohmann/json.hpp>

#include "device_clock.h"
#include "device_memory.h"

namespace hattn::bench {

// Copies within the device's memory.
class DeviceCopy {
public:
    // Of so many bytes, which take twice as much memory.
    DeviceCopy(hattn_device device, int32_t device_id, size_t bytes);
    // Of `runs` copies behind one another; each reads and writes its bytes.
    double seconds(int runs) const;

private:
    DeviceClock clock_;
    size_t bytes_;
    std::unique_ptr<autotune::DeviceMemory> from_, to_;
};

// clock_hz, l2_bytes, memory_clock_hz, memory_bus_bits of a GPU, as CUDA's driver gives them: 0 where it does not tell.
// Of OpenCL clock_hz alone is known.
nlohmann::json device_attributes(hattn_device device, int32_t device_id);

}  // namespace hattn::bench
