#include "device_queue.h"

#include <algorithm>

#include "device.h"
#include "runtime/problem.h"
#include "runtime/status.h"
#include "runtime/structs.h"

// Those of Halide's runtime, and their replacements in cuda_modules.cpp and opencl_modules.cpp.
extern "C" {
int halide_cuda_initialize_kernels(void *, void **, const char *, int);
void halide_cuda_finalize_kernels(void *, void *);
int halide_cuda_run(void *, void *, const char *, int, int, int, int, int, int, int, size_t[], void *[], int8_t[]);
int halide_opencl_initialize_kernels(void *, void **, const char *, int);
void halide_opencl_finalize_kernels(void *, void *);
int halide_opencl_run(void *, void *, const char *, int, int, int, int, int, int, int, size_t[], void *[], int8_t[]);
}

namespace hattn {

namespace {

// Packs do not know the interface.
int copy_to_device(void *context, halide_buffer_t *buffer, const halide_device_interface_t *) {
    return halide_copy_to_device(context, buffer, DeviceQueue::of(context).target.interface());
}

}  // namespace

const LaunchFunctions &launch_functions(hattn_device device) {
    static constexpr LaunchFunctions cuda = {copy_to_device, halide_cuda_initialize_kernels,
                                             halide_cuda_finalize_kernels, halide_cuda_run};
    static constexpr LaunchFunctions opencl = {copy_to_device, halide_opencl_initialize_kernels,
                                               halide_opencl_finalize_kernels, halide_opencl_run};
    return device == HATTN_OPENCL ? opencl : cuda;
}

DeviceQueue::DeviceQueue(const DeviceTargetInfo &kernels_for, int32_t id, const hattn_queue *given)
    : LaunchFunctions(launch_functions(kernels_for.device)),
      target(kernels_for),
      driver(device_driver(kernels_for.device)),
      device_id(id) {
    if (given) {
        const hattn_queue read = read_struct(given, "queue");
        driver.open(*this, &read);
    } else {
        driver.open(*this, nullptr);
    }
}

DeviceQueue::DeviceQueue(const DeviceTargetInfo &kernels_for, int32_t id, const hattn_attention_args &args,
                         size_t workspace_bytes)
    : DeviceQueue(kernels_for, id, args.queue) {
    workspace = args.device_workspace;
    workspace_size = std::min(args.device_workspace_size, workspace_bytes);
    if (workspace) {
        driver.check_memory(*this, reinterpret_cast<uint64_t>(workspace), workspace_size, "device_workspace");
    }
}

void DeviceQueue::drain() const {
    discard_device_error();
    try {
        driver.wait(*this);
    } catch (const StatusError &) {
        // The first error counts.
    }
}

}  // namespace hattn

hattn_status hattn_device_queue(hattn_device device, int32_t device_id, hattn_queue *queue) {
    using namespace hattn;
    return guarded([&] {
        hattn_queue own = read_struct(queue, "queue");
        require(device == HATTN_OPENCL || device == HATTN_CUDA, HATTN_INVALID_ARGUMENT, "device: is ",
                static_cast<int>(device), ", but must be ", static_cast<int>(HATTN_OPENCL), " (opencl) or ",
                static_cast<int>(HATTN_CUDA), " (cuda)");
        check_device_id(device, device_id);
        const DeviceQueue found(usable_device(device, device_id), device_id);
        own.queue = found.queue;
        // As a queue is given: that of OpenCL has its context with it.
        own.context = device == HATTN_CUDA ? found.context : nullptr;
        *queue = own;
    });
}
