// The CUDA driver, and the functions of Halide's runtime that say where work goes: into the context and stream of the
// DeviceQueue that is the user context.
#include <HalideRuntime.h>

#include <mutex>
#include <vector>

#include "cuda_api.h"
#include "device.h"
#include "device_queue.h"
#include "device_workspace.h"

namespace hattn {

namespace {

using cuda::api;
using cuda::Result;

// CUdevice_attribute.
constexpr int kMultiprocessors = 16, kCapabilityMinor = 76, kSharedBytesOptIn = 97;
constexpr int kOldestCapability = 8;
// Handles up to this one are default streams, which belong to whatever context is current.
constexpr uintptr_t kLastDefaultStream = 2;
constexpr unsigned kEventWithoutTime = 2;  // CU_EVENT_DISABLE_TIMING

void check_result(Result result, const char *what) {
    require(result == cuda::kSuccess, cuda_status(result), "cuda: ", what, ": ", cuda::error_text(result));
}

int attribute_of(int device, int attribute) {
    int value = 0;
    api().device_attribute(&value, attribute, device);
    return value;
}

int device_of(int32_t device_id) {
    int device = 0;
    check_result(api().device_get(&device, device_id), "cuDeviceGet");
    return device;
}

// The contexts that other libraries use too. They are retained once and for all: at exit there may be no driver left
// to give them back to.
void *primary_context(int32_t device_id) {
    static std::mutex mutex;
    static std::vector<void *> contexts;
    const std::lock_guard lock(mutex);
    if (contexts.size() <= static_cast<size_t>(device_id)) {
        contexts.resize(device_id + 1);
    }
    void *&context = contexts[device_id];
    if (!context) {
        check_result(api().retain_primary_context(&context, device_of(device_id)), "cuDevicePrimaryCtxRetain");
    }
    return context;
}

int device_of_context(void *context) {
    const cuda::CurrentContext current(context);
    check_result(current.result(), "cuCtxPushCurrent");
    int device = 0;
    check_result(api().context_device(&device), "cuCtxGetDevice");
    return device;
}

void *context_of(const hattn_queue &given, int32_t device_id) {
    if (given.context) {
        return given.context;
    }
    void *context = nullptr;
    if (reinterpret_cast<uintptr_t>(given.queue) > kLastDefaultStream) {
        check_result(api().stream_context(given.queue, &context), "queue: cuStreamGetCtx");
        return context;
    }
    int device = 0;
    const bool current = api().current_context(&context) == cuda::kSuccess && context &&
                         api().context_device(&device) == cuda::kSuccess && device == device_of(device_id);
    return current ? context : primary_context(device_id);
}

class CudaDriver : public DeviceDriver {
public:
    int32_t count() const override {
        int devices = 0;
        const bool known = api().unusable.empty() && api().device_count(&devices) == cuda::kSuccess;
        return known ? devices : 0;
    }

    std::string unusable(int32_t device_id) const override {
        if (!api().unusable.empty()) {
            return api().unusable;
        }
        if (device_id >= count()) {
            return count() == 0 ? "there is no GPU"
                                : "there are " + std::to_string(count()) + " of them, counted from 0";
        }
        const int device = device_of(device_id);
        if (attribute_of(device, cuda::kCapabilityMajor) < kOldestCapability) {
            const DeviceIdentity gpu = identity(device_id);
            return "GPU " + std::to_string(device_id) + " (" + gpu.name + ") has compute capability " + gpu.capability +
                   ", but kernels need " + std::to_string(kOldestCapability) + ".0";
        }
        return "";
    }

    DeviceIdentity identity(int32_t device_id) const override {
        const int device = device_of(device_id);
        char name[256] = "";
        size_t bytes = 0;
        int version = 0;
        check_result(api().device_name(name, sizeof(name), device), "cuDeviceGetName");
        check_result(api().device_memory(&bytes, device), "cuDeviceTotalMem");
        check_result(api().driver_version(&version), "cuDriverGetVersion");
        return {name,
                std::to_string(attribute_of(device, cuda::kCapabilityMajor)) + "." +
                    std::to_string(attribute_of(device, kCapabilityMinor)),
                std::to_string(version), attribute_of(device, kMultiprocessors), static_cast<int64_t>(bytes)};
    }

    int64_t shared_bytes(int32_t device_id) const override {
        return attribute_of(device_of(device_id), kSharedBytesOptIn);
    }

    void open(DeviceQueue &queue, const hattn_queue *given) const override {
        if (!given) {
            queue.context = primary_context(queue.device_id);
            return;
        }
        queue.queue = given->queue;
        queue.context = context_of(*given, queue.device_id);
        const int device = device_of_context(queue.context);
        require(device == device_of(queue.device_id), HATTN_INVALID_ARGUMENT, "queue: its context is of GPU ", device,
                ", but the plan's device_id is ", queue.device_id);
    }

    void upload(const DeviceQueue &queue, uint64_t memory, const void *host, size_t bytes) const override {
        const cuda::CurrentContext current(queue.context);
        check_result(current.result(), "cuCtxPushCurrent");
        check_result(api().copy_to_device(memory, host, bytes, queue.queue), "cuMemcpyHtoDAsync");
    }

    void wait(const DeviceQueue &queue) const override {
        const cuda::CurrentContext current(queue.context);
        check_result(current.result(), "cuCtxPushCurrent");
        check_result(api().stream_synchronize(queue.queue), "cuStreamSynchronize");
    }

    uint64_t allocate(const DeviceQueue &queue, size_t bytes) const override {
        const cuda::CurrentContext current(queue.context);
        check_result(current.result(), "cuCtxPushCurrent");
        cuda::DevicePointer memory = 0;
        check_result(api().allocate(&memory, bytes), "cuMemAlloc");
        return memory;
    }
    void release(const DeviceQueue &queue, uint64_t memory) const override {
        const cuda::CurrentContext current(queue.context);
        api().release(memory);
    }

    void *allocate_host(const DeviceQueue &queue, size_t bytes) const override {
        const cuda::CurrentContext current(queue.context);
        check_result(current.result(), "cuCtxPushCurrent");
        void *memory = nullptr;
        check_result(api().allocate_host(&memory, bytes), "cuMemAllocHost");
        return memory;
    }
    void release_host(const DeviceQueue &queue, void *memory) const override {
        const cuda::CurrentContext current(queue.context);
        api().release_host(memory);
    }

    void mark(const DeviceQueue &queue, void *&event) const override {
        const cuda::CurrentContext current(queue.context);
        check_result(current.result(), "cuCtxPushCurrent");
        if (!event) {
            check_result(api().create_event(&event, kEventWithoutTime), "cuEventCreate");
        }
        check_result(api().record_event(event, queue.queue), "cuEventRecord");
    }
    void wait_for(const DeviceQueue &queue, void *event) const override {
        const cuda::CurrentContext current(queue.context);
        check_result(current.result(), "cuCtxPushCurrent");
        const Result result = api().query_event(event);
        check_result(result == cuda::kNotReady ? api().synchronize_event(event) : result, "cuEventSynchronize");
    }
    void release_event(const DeviceQueue &queue, void *event) const override {
        const cuda::CurrentContext current(queue.context);
        api().destroy_event(event);
    }

    uint64_t part(void *memory, size_t offset, size_t) const override {
        return reinterpret_cast<uint64_t>(memory) + offset;
    }
    void release_part(uint64_t) const override {}
    size_t part_alignment() const override {
        return kDeviceAlignment;
    }
};

}  // namespace

const DeviceDriver &cuda_driver() {
    static const CudaDriver driver;
    return driver;
}

}  // namespace hattn

// These replace weak functions of Halide's runtime. Without a user context it is about to leave, and finds nothing of
// its own.
extern "C" {

void *halide_cuda_get_symbol(void *, const char *name) {
    return hattn::cuda::symbol(name);
}

int halide_cuda_acquire_context(void *user_context, void **context, bool create) {
    *context = user_context ? hattn::DeviceQueue::of(user_context).context : nullptr;
    return *context || !create ? halide_error_code_success : halide_error_code_generic_error;
}

int halide_cuda_release_context(void *) {
    return halide_error_code_success;
}

int halide_cuda_get_stream(void *user_context, void *, void **stream) {
    *stream = user_context ? hattn::DeviceQueue::of(user_context).queue : nullptr;
    return halide_error_code_success;
}

}  // extern "C"
