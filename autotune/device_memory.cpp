#include "device_memory.h"

#include <algorithm>
#include <stdexcept>

#include "driver_function.h"
#include "hattn/hattn.hpp"

namespace hattn::autotune {

namespace {

// (OpenCL 1.2 specification)
class OpenClMemory : public DeviceMemory {
public:
    OpenClMemory(const hattn_queue &queue, size_t bytes) : queue_(queue.queue) {
        constexpr uint32_t kQueueContext = 0x1090;
        constexpr uint64_t kReadWrite = 1;
        void *context = nullptr;
        check_driver(opencl_function<int(void *, uint32_t, size_t, void *, size_t *)>("clGetCommandQueueInfo")(
                         queue_, kQueueContext, sizeof(context), &context, nullptr),
                     "clGetCommandQueueInfo");
        int result = 0;
        memory_ = opencl_function<void *(void *, uint64_t, size_t, void *, int *)>("clCreateBuffer")(
            context, kReadWrite, bytes, nullptr, &result);
        check_driver(result, "clCreateBuffer");
    }
    ~OpenClMemory() override {
        try {
            opencl_function<int(void *)>("clReleaseMemObject")(memory_);
        } catch (const std::runtime_error &) {
            // There is nobody to tell.
        }
    }
    OpenClMemory(const OpenClMemory &) = delete;
    OpenClMemory &operator=(const OpenClMemory &) = delete;

    void write(const void *from, size_t bytes) override {
        check_driver(opencl_function<int(void *, void *, uint32_t, size_t, size_t, const void *, uint32_t, const void *,
                                         void *)>("clEnqueueWriteBuffer")(queue_, memory_, kBlocking, 0, bytes, from, 0,
                                                                          nullptr, nullptr),
                     "clEnqueueWriteBuffer");
    }
    void read(void *to, size_t bytes) override {
        check_driver(
            opencl_function<int(void *, void *, uint32_t, size_t, size_t, void *, uint32_t, const void *, void *)>(
                "clEnqueueReadBuffer")(queue_, memory_, kBlocking, 0, bytes, to, 0, nullptr, nullptr),
            "clEnqueueReadBuffer");
    }
    void *handle() const override {
        return memory_;
    }

private:
    static constexpr uint32_t kBlocking = 1;

    void *queue_, *memory_ = nullptr;
};

// (CUDA Driver API)
class CudaMemory : public DeviceMemory {
public:
    CudaMemory(const hattn_queue &queue, size_t bytes) : context_(queue.context) {
        in_context([&] { return cuda_function<int(uint64_t *, size_t)>("cuMemAlloc_v2")(&memory_, bytes); },
                   "cuMemAlloc");
    }
    ~CudaMemory() override {
        try {
            in_context([&] { return cuda_function<int(uint64_t)>("cuMemFree_v2")(memory_); }, "cuMemFree");
        } catch (const std::runtime_error &) {
            // There is nobody to tell.
        }
    }
    CudaMemory(const CudaMemory &) = delete;
    CudaMemory &operator=(const CudaMemory &) = delete;

    void write(const void *from, size_t bytes) override {
        in_context(
            [&] { return cuda_function<int(uint64_t, const void *, size_t)>("cuMemcpyHtoD_v2")(memory_, from, bytes); },
            "cuMemcpyHtoD");
    }
    void read(void *to, size_t bytes) override {
        in_context([&] { return cuda_function<int(void *, uint64_t, size_t)>("cuMemcpyDtoH_v2")(to, memory_, bytes); },
                   "cuMemcpyDtoH");
    }
    void *handle() const override {
        return reinterpret_cast<void *>(memory_);
    }

private:
    template<typename Call>
    void in_context(Call call, const char *what) const {
        const CudaContextScope current(context_);
        check_driver(call(), what);
    }

    void *context_;
    uint64_t memory_ = 0;
};

}  // namespace

std::unique_ptr<DeviceMemory> make_device_memory(hattn_device device, int32_t device_id, size_t bytes) {
    const hattn_queue queue = device_queue(device, device_id);
    const size_t size = std::max<size_t>(bytes, 1);
    if (device == HATTN_OPENCL) {
        return std::make_unique<OpenClMemory>(queue, size);
    }
    return std::make_unique<CudaMemory>(queue, size);
}

}  // namespace hattn::autotune
