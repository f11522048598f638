// OpenCL, and the functions of Halide's runtime that say where work goes: into the context and queue of the DeviceQueue
// that is the user context.
#include <HalideRuntime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "device.h"
#include "device_queue.h"
#include "opencl_api.h"
#include "runtime/status.h"

namespace hattn {

namespace {

using opencl::api;
using opencl::Count;
using opencl::Result;

// cl.h
constexpr Count kPlatformName = 0x0902, kDeviceName = 0x102B, kDriverVersion = 0x102D, kDeviceVersion = 0x102F,
                kComputeUnits = 0x1002, kGlobalMemory = 0x101F, kLocalMemory = 0x1023, kContextDeviceCount = 0x1083,
                kQueueContext = 0x1090, kQueueProperties = 0x1093, kMemorySize = 0x1102, kMemoryContext = 0x1106,
                kMemoryWhole = 0x1107, kRegion = 0x1220;
constexpr std::align_val_t kHostAlignment{64};
constexpr intptr_t kContextPlatform = 0x1084;
constexpr uint64_t kCpu = 2, kGpu = 4, kAccelerator = 8, kAllTypes = 0xFFFFFFFF, kOutOfOrder = 1, kReadWrite = 1;

void check_result(Result result, const char *what) {
    require(result == opencl::kSuccess, opencl_status(result), "opencl: ", what, ": ", opencl::error_text(result));
}

template<typename Query>
std::string text_of(Query query, void *object, Count name) {
    char text[256] = "";
    query(object, name, sizeof(text) - 1, text, nullptr);
    return text;
}

template<typename Value, typename Query>
Value value_of(Query query, void *object, Count name, Value otherwise) {
    Value value = otherwise;
    return query(object, name, sizeof(value), &value, nullptr) == opencl::kSuccess ? value : otherwise;
}

// The variables of Halide's runtime.
uint64_t wanted_types() {
    const char *types = std::getenv("HL_OCL_DEVICE_TYPE");
    uint64_t wanted = 0;
    for (const auto &[name, type] : {std::pair("cpu", kCpu), std::pair("gpu", kGpu), std::pair("acc", kAccelerator)}) {
        wanted |= types && std::strstr(types, name) ? type : 0;
    }
    return wanted ? wanted : kAllTypes;
}

Count devices_of(void *platform) {
    Count count = 0;
    api().devices(platform, wanted_types(), 0, nullptr, &count);
    return count;
}

// The first that has a device: there may be platforms without any.
void *find_platform() {
    const char *wanted = std::getenv("HL_OCL_PLATFORM_NAME");
    Count count = 0;
    api().platforms(0, nullptr, &count);
    std::vector<void *> platforms(count);
    api().platforms(count, platforms.data(), &count);
    const auto found = std::find_if(platforms.begin(), platforms.end(), [&](void *platform) {
        const bool is_wanted =
            !wanted || text_of(api().platform_info, platform, kPlatformName).find(wanted) != std::string::npos;
        return is_wanted && devices_of(platform) > 0;
    });
    return found == platforms.end() ? nullptr : *found;
}

// The library's own context and queue, on the device with the most compute units.
struct OwnQueue {
    void *device = nullptr, *context = nullptr, *queue = nullptr;
    std::string unusable;

    OwnQueue() {
        unusable = api().unusable;
        void *const platform = unusable.empty() ? find_platform() : nullptr;
        if (!platform) {
            unusable = unusable.empty() ? "OpenCL has no such platform or device" : unusable;
            return;
        }
        Count count = devices_of(platform);
        std::vector<void *> devices(count);
        api().devices(platform, wanted_types(), count, devices.data(), &count);
        device = *std::max_element(devices.begin(), devices.end(), [](void *a, void *b) {
            return value_of<Count>(api().device_info, a, kComputeUnits, 0) <
                   value_of<Count>(api().device_info, b, kComputeUnits, 0);
        });
        const intptr_t properties[] = {kContextPlatform, reinterpret_cast<intptr_t>(platform), 0};
        Result result = opencl::kSuccess;
        context = api().create_context(properties, 1, &device, nullptr, nullptr, &result);
        queue = context ? api().create_queue(context, device, 0, &result) : nullptr;
        unusable = queue ? "" : opencl::error_text(result);
    }
};

// Never released: at exit there may be no driver left.
const OwnQueue &own_queue() {
    static const OwnQueue *const own = new OwnQueue;
    return *own;
}

class OpenClDriver : public DeviceDriver {
public:
    int32_t count() const override {
        return own_queue().device ? 1 : 0;
    }
    std::string unusable(int32_t) const override {
        return own_queue().unusable;
    }
    DeviceIdentity identity(int32_t) const override {
        void *const device = own_queue().device;
        return {text_of(api().device_info, device, kDeviceName), text_of(api().device_info, device, kDeviceVersion),
                text_of(api().device_info, device, kDriverVersion),
                value_of<Count>(api().device_info, device, kComputeUnits, 0),
                static_cast<int64_t>(value_of<uint64_t>(api().device_info, device, kGlobalMemory, 0))};
    }

    int64_t shared_bytes(int32_t) const override {
        return static_cast<int64_t>(value_of<uint64_t>(api().device_info, own_queue().device, kLocalMemory, 0));
    }

    void open(DeviceQueue &queue, const hattn_queue *given) const override {
        if (!given) {
            queue.context = own_queue().context;
            queue.queue = own_queue().queue;
            return;
        }
        require(given->queue, HATTN_INVALID_ARGUMENT, "queue: queue is null, but must be a cl_command_queue");
        require(!given->context, HATTN_INVALID_ARGUMENT, "queue: context is ", given->context,
                ", but must be null: it is that of the cl_command_queue");
        queue.queue = given->queue;
        check_result(api().queue_info(queue.queue, kQueueContext, sizeof(void *), &queue.context, nullptr),
                     "queue: clGetCommandQueueInfo");
        require(!(value_of<uint64_t>(api().queue_info, queue.queue, kQueueProperties, 0) & kOutOfOrder),
                HATTN_NOT_SUPPORTED, "queue: runs commands out of order, but must run them in order");
        const Count devices = value_of<Count>(api().context_info, queue.context, kContextDeviceCount, 0);
        require(devices == 1, HATTN_NOT_SUPPORTED, "queue: its context has ", devices, " devices, but must have 1");
    }

    void upload(const DeviceQueue &queue, uint64_t memory, const void *host, size_t bytes) const override {
        check_result(
            api().write_buffer(queue.queue, reinterpret_cast<void *>(memory), 0, 0, bytes, host, 0, nullptr, nullptr),
            "clEnqueueWriteBuffer");
    }

    void wait(const DeviceQueue &queue) const override {
        check_result(api().finish(queue.queue), "clFinish");
    }

    void check_memory(const DeviceQueue &queue, uint64_t memory, uint64_t bytes, const char *name) const override {
        void *const object = reinterpret_cast<void *>(memory);
        size_t size = 0;
        const Result result = api().memory_info(object, kMemorySize, sizeof(size), &size, nullptr);
        require(result == opencl::kSuccess, HATTN_INVALID_ARGUMENT, name, ": is ", object, ", which is no cl_mem (",
                opencl::error_text(result), ")");
        require(!value_of<void *>(api().memory_info, object, kMemoryWhole, nullptr), HATTN_INVALID_ARGUMENT, name,
                ": is ", object, ", a part of another cl_mem, but must be a whole one");
        void *const context = value_of<void *>(api().memory_info, object, kMemoryContext, nullptr);
        require(context == queue.context, HATTN_INVALID_ARGUMENT, name, ": its cl_mem is of the context ", context,
                ", but that of the queue is ", queue.context);
        require(bytes <= size, HATTN_INVALID_ARGUMENT, name, ": reaches to byte ", bytes, " of a cl_mem, which has ",
                size, " bytes");
    }

    uint64_t allocate(const DeviceQueue &queue, size_t bytes) const override {
        Result result = opencl::kSuccess;
        void *const memory = api().create_buffer(queue.context, kReadWrite, bytes, nullptr, &result);
        check_result(result, ("clCreateBuffer of " + std::to_string(bytes) + " bytes").c_str());
        return reinterpret_cast<uint64_t>(memory);
    }
    void release(const DeviceQueue &, uint64_t memory) const override {
        api().release_memory(reinterpret_cast<void *>(memory));
    }

    // OpenCL has none that is page-locked but mapped buffers.
    void *allocate_host(const DeviceQueue &, size_t bytes) const override {
        return ::operator new(bytes, kHostAlignment);
    }
    void release_host(const DeviceQueue &, void *memory) const override {
        ::operator delete(memory, kHostAlignment);
    }

    void mark(const DeviceQueue &queue, void *&event) const override {
        if (event) {
            api().release_event(event);
            event = nullptr;
        }
        check_result(api().marker(queue.queue, &event), "clEnqueueMarker");
    }
    void wait_for(const DeviceQueue &, void *event) const override {
        check_result(api().wait_for_events(1, &event), "clWaitForEvents");
    }
    void release_event(const DeviceQueue &, void *event) const override {
        api().release_event(event);
    }

    uint64_t part(void *memory, size_t offset, size_t bytes) const override {
        const size_t region[] = {offset, bytes};
        Result result = opencl::kSuccess;
        void *const part = api().create_sub_buffer(memory, kReadWrite, kRegion, region, &result);
        check_result(result, "device_workspace: clCreateSubBuffer");
        return reinterpret_cast<uint64_t>(part);
    }
    void release_part(uint64_t part) const override {
        api().release_memory(reinterpret_cast<void *>(part));
    }
};

}  // namespace

const DeviceDriver &opencl_driver() {
    static const OpenClDriver driver;
    return driver;
}

}  // namespace hattn

// These replace weak functions of Halide's runtime. Without a user context it is about to leave, and finds nothing of
// its own.
extern "C" {

int halide_acquire_cl_context(void *user_context, void **context, void **queue, bool create) {
    const auto *given = user_context ? &hattn::DeviceQueue::of(user_context) : nullptr;
    *context = given ? given->context : nullptr;
    *queue = given ? given->queue : nullptr;
    return given || !create ? halide_error_code_success : halide_error_code_generic_error;
}

int halide_release_cl_context(void *) {
    return halide_error_code_success;
}

}  // extern "C"
