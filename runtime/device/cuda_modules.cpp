// Loading and launching kernels, in place of Halide's functions: those compile PTX for at most 64 registers, never ask
// for more shared memory than the 48 KiB that a launch has by default (both of Halide 21.0.0), know no fat binaries and
// no early starts, and take memory from the heap.
#include <HalideRuntime.h>

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "cuda_api.h"
#include "device.h"
#include "device_launch.h"
#include "device_queue.h"
#include "early_start.h"

namespace hattn {

namespace {

using cuda::api;
using cuda::Result;

constexpr int kDefaultSharedBytes = 48 * 1024;
constexpr int kMaxDynamicSharedBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kStartsEarly = 6;            // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

// Whether kernels do so on the GPU of the current context.
bool has_early_starts() {
    int device = 0, major = 0, driver = 0;
    return api().launch_with && api().driver_version(&driver) == cuda::kSuccess && driver >= kEarlyStartDriver &&
           api().context_device(&device) == cuda::kSuccess &&
           api().device_attribute(&major, cuda::kCapabilityMajor, device) == cuda::kSuccess &&
           major >= kEarlyStartCapability;
}

// A kernel in one context. A module has one kernel, see generators/device_objects.h.
struct LoadedKernel {
    void *module = nullptr;
    void *function = nullptr;
    int shared_bytes = kDefaultSharedBytes;  // that a launch may ask for
    bool starts_early = false;
};

// By context and packed PTX.
class LoadedKernels {
public:
    // Loads once: the fat binary if the build has one and this GPU takes it, else the PTX.
    Result load(const DeviceQueue &queue, const void *packed, size_t bytes) {
        const std::lock_guard lock(mutex_);
        LoadedKernel &kernel = kernels_[{queue.context, packed}];
        if (kernel.module) {
            return cuda::kSuccess;
        }
        kernel.starts_early = has_early_starts();
        const void *fat = queue.kernel ? queue.kernel->fat_binary : nullptr;
        if (fat && api().load_module(&kernel.module, fat) == cuda::kSuccess) {
            return cuda::kSuccess;
        }
        kernel.module = nullptr;
        std::string ptx = device_table().unpack_code(packed, bytes);
        if (kernel.starts_early) {
            std::string early = with_early_start(ptx);
            kernel.starts_early = !early.empty();
            ptx = kernel.starts_early ? std::move(early) : ptx;
        }
        const Result result = api().load_module(&kernel.module, ptx.c_str());
        if (result != cuda::kSuccess) {
            kernel.module = nullptr;
        }
        return result;
    }

    // One that is loaded, and may be launched with so much shared memory.
    Result prepare(const DeviceQueue &queue, const void *packed, const char *name, int shared_bytes,
                   LoadedKernel &ready) {
        const std::lock_guard lock(mutex_);
        LoadedKernel &kernel = kernels_[{queue.context, packed}];
        Result result = cuda::kSuccess;
        if (!kernel.module) {
            return cuda::kInvalidHandle;  // load() has said why
        }
        if (!kernel.function) {
            result = api().module_function(&kernel.function, kernel.module, name);
        }
        if (result == cuda::kSuccess && shared_bytes > kernel.shared_bytes) {
            result = api().set_function_attribute(kernel.function, kMaxDynamicSharedBytes, shared_bytes);
            kernel.shared_bytes = result == cuda::kSuccess ? shared_bytes : kernel.shared_bytes;
        }
        ready = kernel;
        return result;
    }

private:
    std::mutex mutex_;
    std::map<std::pair<const void *, const void *>, LoadedKernel> kernels_;
};

LoadedKernels &loaded_kernels() {
    static LoadedKernels *const kernels = new LoadedKernels;  // for as long as any thread may launch
    return *kernels;
}

int report(Result result, const char *what) {
    if (result == cuda::kSuccess) {
        return halide_error_code_success;
    }
    note_device_error(cuda_status(result), (std::string(what) + ": " + cuda::error_text(result)).c_str());
    return halide_error_code_gpu_device_error;
}

}  // namespace

// (Its use also has the linker take this file, and with it the functions that replace those of Halide.)
hattn_status cuda_status(int result) {
    switch (result) {
    case cuda::kOutOfMemory:
        return HATTN_OUT_OF_MEMORY;
    case cuda::kNoDevice:
    case cuda::kNoBinaryForGpu:
    case cuda::kUnsupportedPtxVersion:
        return HATTN_NOT_SUPPORTED;
    default:
        return HATTN_INTERNAL_ERROR;
    }
}

}  // namespace hattn

// These replace weak functions of Halide's runtime.
extern "C" {

int halide_cuda_initialize_kernels(void *user_context, void **state, const char *packed, int bytes) {
    using namespace hattn;
    return called_by_kernel([&]() -> int {
        const auto &queue = DeviceQueue::of(user_context);
        *state = const_cast<char *>(packed);
        const cuda::CurrentContext current(queue.context);
        if (current.result() != cuda::kSuccess) {
            return report(current.result(), "cuCtxPushCurrent");
        }
        return report(loaded_kernels().load(queue, packed, static_cast<size_t>(bytes)), "cuModuleLoadData");
    });
}

void halide_cuda_finalize_kernels(void *, void *) {}

int halide_cuda_run(void *user_context, void *state, const char *name, int blocks_x, int blocks_y, int blocks_z,
                    int threads_x, int threads_y, int threads_z, int shared_bytes, size_t sizes[], void *arguments[],
                    int8_t is_buffer[]) {
    using namespace hattn;
    return called_by_kernel([&]() -> int {
        const auto &queue = DeviceQueue::of(user_context);
        const cuda::CurrentContext current(queue.context);
        if (current.result() != cuda::kSuccess) {
            return report(current.result(), "cuCtxPushCurrent");
        }
        LoadedKernel kernel;
        if (const Result result = loaded_kernels().prepare(queue, state, name, shared_bytes, kernel);
            result != cuda::kSuccess) {
            return report(result, "cuModuleGetFunction or cuFuncSetAttribute");
        }
        std::array<void *, kMostArguments> pointers = {};
        for (size_t i = 0; sizes[i] != 0; ++i) {
            if (i == kMostArguments) {
                note_device_error(HATTN_INTERNAL_ERROR, "a kernel has too many arguments");
                return halide_error_code_internal_error;
            }
            pointers[i] = is_buffer[i] ? &static_cast<halide_buffer_t *>(arguments[i])->device : arguments[i];
        }
        const auto count = [](int number) { return static_cast<unsigned>(number); };
        if (kernel.starts_early) {
            cuda::LaunchAttribute early = {kStartsEarly, {1}};
            const cuda::LaunchConfig config = {{count(blocks_x), count(blocks_y), count(blocks_z)},
                                               {count(threads_x), count(threads_y), count(threads_z)},
                                               count(shared_bytes),
                                               queue.queue,
                                               &early,
                                               1};
            return report(api().launch_with(&config, kernel.function, pointers.data(), nullptr), "cuLaunchKernelEx");
        }
        return report(api().launch(kernel.function, count(blocks_x), count(blocks_y), count(blocks_z), count(threads_x),
                                   count(threads_y), count(threads_z), count(shared_bytes), queue.queue,
                                   pointers.data(), nullptr),
                      "cuLaunchKernel");
    });
}

}  // extern "C"
