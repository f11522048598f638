#include "device_limits.h"

#include "driver_function.h"

namespace hattn::bench {

namespace {

using autotune::check_driver;
using autotune::cuda_function;
using autotune::CudaContextScope;
using autotune::opencl_function;

void copy(const DeviceClock &clock, void *to, void *from, size_t bytes) {
    if (clock.device() == HATTN_OPENCL) {
        check_driver(
            opencl_function<int(void *, void *, void *, size_t, size_t, size_t, uint32_t, const void *, void *)>(
                "clEnqueueCopyBuffer")(clock.queue().queue, from, to, 0, 0, bytes, 0, nullptr, nullptr),
            "clEnqueueCopyBuffer");
        return;
    }
    const CudaContextScope current(clock.queue().context);
    check_driver(cuda_function<int(uint64_t, uint64_t, size_t, void *)>("cuMemcpyDtoDAsync_v2")(
                     reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes, clock.queue().queue),
                 "cuMemcpyDtoDAsync");
}

// CUdevice_attribute, by what we call it; clocks are in kHz.
constexpr struct {
    const char *name;
    int attribute;
    double unit;
} kAttributes[] = {
    {"clock_hz", 13, 1e3}, {"memory_clock_hz", 36, 1e3}, {"memory_bus_bits", 37, 1.0}, {"l2_bytes", 38, 1.0}};

double opencl_clock(const hattn_queue &queue) {
    constexpr uint32_t kQueueDevice = 0x1091, kClockMegahertz = 0x100C;
    void *device = nullptr;
    uint32_t megahertz = 0;
    check_driver(opencl_function<int(void *, uint32_t, size_t, void *, size_t *)>("clGetCommandQueueInfo")(
                     queue.queue, kQueueDevice, sizeof(device), &device, nullptr),
                 "clGetCommandQueueInfo");
    opencl_function<int(void *, uint32_t, size_t, void *, size_t *)>("clGetDeviceInfo")(
        device, kClockMegahertz, sizeof(megahertz), &megahertz, nullptr);
    return 1e6 * megahertz;
}

}  // namespace

DeviceCopy::DeviceCopy(hattn_device device, int32_t device_id, size_t bytes)
    : clock_(device, device_id),
      bytes_(bytes),
      from_(autotune::make_device_memory(device, device_id, bytes)),
      to_(autotune::make_device_memory(device, device_id, bytes)) {}

double DeviceCopy::seconds(int runs) const {
    return clock_.seconds([&] {
        for (int run = 0; run < runs; ++run) {
            copy(clock_, to_->handle(), from_->handle(), bytes_);
        }
    });
}

nlohmann::json device_attributes(hattn_device device, int32_t device_id) {
    nlohmann::json attributes = nlohmann::json::object();
    if (device == HATTN_OPENCL) {
        attributes["clock_hz"] = opencl_clock(DeviceClock(device, device_id).queue());
        return attributes;
    }
    int handle = 0;
    check_driver(cuda_function<int(int *, int)>("cuDeviceGet")(&handle, device_id), "cuDeviceGet");
    for (const auto &[name, attribute, unit] : kAttributes) {
        int value = 0;
        cuda_function<int(int *, int, int)>("cuDeviceGetAttribute")(&value, attribute, handle);
        attributes[name] = unit * value;
    }
    return attributes;
}

}  // namespace hattn::bench
