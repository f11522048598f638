// The peak of float32 multiply-adds of a CUDA GPU: a kernel that does nothing else, in registers.
#pragma once

#include <cstdint>
#include <memory>

#include "device_clock.h"
#include "device_memory.h"

namespace hattn::bench {

class MultiplyAdds {
public:
    // Throws std::runtime_error; so does it where the device is none of CUDA's.
    MultiplyAdds(hattn_device device, int32_t device_id);
    // Of one launch that does `runs` times operations(); a multiply-add is two.
    double seconds(int runs) const;
    double operations() const;

private:
    DeviceClock clock_;
    void *kernel_ = nullptr;
    unsigned blocks_ = 0;
    std::unique_ptr<autotune::DeviceMemory> sums_;  // of each thread, so that none of it is left out
};

}  // namespace hattn::bench
