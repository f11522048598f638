#include "host_memory.h"

#include <algorithm>
#include <stdexcept>

#include "driver_function.h"

namespace hattn::bench {

namespace {

using autotune::CudaContextScope;
using autotune::find_driver_function;
using autotune::kCudaDriver;

}  // namespace

HostMemory::HostMemory(const DeviceClock &clock, size_t bytes) : context_(clock.queue().context) {
    const size_t size = std::max<size_t>(bytes, 1);
    auto *const allocate = clock.device() == HATTN_CUDA
                               ? find_driver_function<int(void **, size_t)>(kCudaDriver, "cuMemAllocHost_v2")
                               : nullptr;
    if (allocate) {
        const CudaContextScope current(context_);
        locked_ = allocate(&locked_, size) == 0 ? locked_ : nullptr;
    }
    if (!locked_) {
        pageable_.emplace(size);
    }
}

HostMemory::~HostMemory() {
    auto *const release = locked_ ? find_driver_function<int(void *)>(kCudaDriver, "cuMemFreeHost") : nullptr;
    if (!release) {
        return;
    }
    try {
        const CudaContextScope current(context_);
        release(locked_);
    } catch (const std::runtime_error &) {
        // There is nobody to tell.
    }
}

void *HostMemory::data() const {
    return locked_ ? locked_ : pageable_->data();
}

}  // namespace hattn::bench
