// Loading and launching kernels, in place of Halide's functions: their code is packed, and those make a kernel anew for
// each launch.
#include <HalideRuntime.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "device.h"
#include "device_queue.h"
#include "opencl_api.h"

// Of HalideRuntimeOpenCL.h; builds without OpenCL have neither.
extern "C" {
__attribute__((weak)) uintptr_t halide_opencl_get_cl_mem(void *user_context, struct halide_buffer_t *buffer);
__attribute__((weak)) const char *halide_opencl_get_build_options(void *user_context);
}

namespace hattn {

namespace {

using opencl::api;
using opencl::Count;
using opencl::Result;

// cl.h
constexpr Count kContextDevices = 0x1081, kMaxConstantBytes = 0x1020, kMaxConstantArguments = 0x1021,
                kBuildLog = 0x1183, kLocalMemory = 0x1023;

int report(Result result, const std::string &what) {
    if (result == opencl::kSuccess) {
        return halide_error_code_success;
    }
    note_device_error(opencl_status(result), (what + ": " + opencl::error_text(result)).c_str());
    return halide_error_code_gpu_device_error;
}

// A kernel in one context. Code is that of one kernel, see generators/device_objects.h. Arguments belong to it, so one
// launch at a time sets them.
struct LoadedKernel {
    std::mutex mutex;
    void *program = nullptr, *kernel = nullptr;
};

// What the text asks to be told, see CodeGen_OpenCL_Dev.cpp in Halide.
std::string build_options(void *device) {
    uint64_t constant_bytes = 0;
    Count constant_arguments = 0;
    api().device_info(device, kMaxConstantBytes, sizeof(constant_bytes), &constant_bytes, nullptr);
    api().device_info(device, kMaxConstantArguments, sizeof(constant_arguments), &constant_arguments, nullptr);
    return "-D MAX_CONSTANT_BUFFER_SIZE=" + std::to_string(constant_bytes) +
           " -D MAX_CONSTANT_ARGS=" + std::to_string(constant_arguments) + " " +
           halide_opencl_get_build_options(nullptr);
}

std::string build_log(void *program, void *device) {
    std::string log(4096, '\0');
    size_t length = 0;
    const Result result = api().build_info(program, device, kBuildLog, log.size(), log.data(), &length);
    return result == opencl::kSuccess ? log.c_str() : "its log is longer than " + std::to_string(log.size());
}

// Plans see to it for the library's own device; an application's queue may be of another one.
bool fits(const DeviceKernelInfo *kernel, void *device) {
    uint64_t local_bytes = 0;
    api().device_info(device, kLocalMemory, sizeof(local_bytes), &local_bytes, nullptr);
    if (!kernel || static_cast<uint64_t>(kernel->shared_bytes) <= local_bytes) {
        return true;
    }
    const std::string text = "queue: its device has " + std::to_string(local_bytes) +
                             " bytes of local memory for a work group, but " + kernel->name + " takes " +
                             std::to_string(kernel->shared_bytes);
    note_device_error(HATTN_NOT_SUPPORTED, text.c_str());
    return false;
}

int build(const DeviceQueue &queue, const std::string &text, LoadedKernel &kernel) {
    void *device = nullptr;
    Result result = api().context_info(queue.context, kContextDevices, sizeof(device), &device, nullptr);
    if (result != opencl::kSuccess) {
        return report(result, "clGetContextInfo");
    }
    if (!fits(queue.kernel, device)) {
        return halide_error_code_gpu_device_error;
    }
    const char *const source = text.c_str();
    void *const program = api().create_program(queue.context, 1, const_cast<const char **>(&source), nullptr, &result);
    if (!program) {
        return report(result, "clCreateProgramWithSource");
    }
    result = api().build_program(program, 1, &device, build_options(device).c_str(), nullptr, nullptr);
    if (result != opencl::kSuccess) {
        const int code = report(result, "clBuildProgram: " + build_log(program, device));
        api().release_program(program);
        return code;
    }
    kernel.program = program;
    return halide_error_code_success;
}

// By context, packed text, and the types that it is compiled for.
class LoadedKernels {
public:
    LoadedKernel &find(const DeviceQueue &queue, const void *packed) {
        const std::lock_guard lock(mutex_);
        return kernels_[{queue.context, packed, queue.types}];
    }

private:
    std::mutex mutex_;
    std::map<std::tuple<const void *, const void *, TensorTypes>, LoadedKernel> kernels_;
};

LoadedKernels &loaded_kernels() {
    static LoadedKernels *const kernels = new LoadedKernels;  // for as long as any thread may launch
    return *kernels;
}

struct Arguments {
    const size_t *sizes;  // up to a zero
    void *const *values;
    const int8_t *are_buffers;
};

// Shared memory is the last one.
Result set_arguments(DeviceQueue &queue, void *kernel, const Arguments &arguments, int shared_bytes) {
    Count i = 0;
    Result result = opencl::kSuccess;
    for (; arguments.sizes[i] != 0 && result == opencl::kSuccess; ++i) {
        if (arguments.are_buffers[i]) {
            auto *const buffer = static_cast<halide_buffer_t *>(arguments.values[i]);
            const uintptr_t memory = halide_opencl_get_cl_mem(queue.user_context(), buffer);
            result = api().set_argument(kernel, i, sizeof(memory), &memory);
        } else {
            result = api().set_argument(kernel, i, arguments.sizes[i], arguments.values[i]);
        }
    }
    return result == opencl::kSuccess ? api().set_argument(kernel, i, std::max(shared_bytes, 1), nullptr) : result;
}

}  // namespace

// (Its use also has the linker take this file, and with it the functions that replace those of Halide.)
hattn_status opencl_status(int32_t result) {
    const bool memory = result == opencl::kMemoryFailed || result == opencl::kOutOfResources ||
                        result == opencl::kOutOfHostMemory || result == opencl::kInvalidBufferSize;
    return memory ? HATTN_OUT_OF_MEMORY : HATTN_INTERNAL_ERROR;
}

}  // namespace hattn

// These replace weak functions of Halide's runtime.
extern "C" {

int halide_opencl_initialize_kernels(void *user_context, void **state, const char *packed, int bytes) {
    using namespace hattn;
    return called_by_kernel([&]() -> int {
        const auto &queue = DeviceQueue::of(user_context);
        *state = const_cast<char *>(packed);
        LoadedKernel &kernel = loaded_kernels().find(queue, packed);
        const std::lock_guard lock(kernel.mutex);
        return kernel.program ? halide_error_code_success
                              : build(queue,
                                      loaded_code::definitions(queue.types) +
                                          device_table().unpack_code(packed, static_cast<size_t>(bytes)),
                                      kernel);
    });
}

void halide_opencl_finalize_kernels(void *, void *) {}

int halide_opencl_run(void *user_context, void *state, const char *name, int blocks_x, int blocks_y, int blocks_z,
                      int threads_x, int threads_y, int threads_z, int shared_bytes, size_t sizes[], void *arguments[],
                      int8_t is_buffer[]) {
    using namespace hattn;
    return called_by_kernel([&]() -> int {
        auto &queue = DeviceQueue::of(user_context);
        LoadedKernel &loaded = loaded_kernels().find(queue, state);
        const std::lock_guard lock(loaded.mutex);
        Result result = opencl::kSuccess;
        if (!loaded.kernel) {
            loaded.kernel = api().create_kernel(loaded.program, name, &result);
        }
        if (result != opencl::kSuccess) {
            return report(result, "clCreateKernel");
        }
        result = set_arguments(queue, loaded.kernel, {sizes, arguments, is_buffer}, shared_bytes);
        if (result != opencl::kSuccess) {
            return report(result, "clSetKernelArg");
        }
        const auto count = [](int number) { return static_cast<size_t>(number); };
        const size_t local[] = {count(threads_x), count(threads_y), count(threads_z)};
        const size_t global[] = {blocks_x * local[0], blocks_y * local[1], blocks_z * local[2]};
        return report(api().launch(queue.queue, loaded.kernel, 3, nullptr, global, local, 0, nullptr, nullptr),
                      "clEnqueueNDRangeKernel");
    });
}

}  // extern "C"
