// A CUDA driver without a GPU, for tests of what the library asks a driver for: memory is the host's, kernels are
// engine.h's, and every module, attribute, copy, launch and wait is a line of the file that $HATTN_STUB_CUDA_LOG names.
// Of a fat binary it takes the image that a driver would take, and says which.
// $HATTN_STUB_CUDA_FAIL names a function that fails, $HATTN_STUB_CUDA_DEVICES says how many GPUs there are (1),
// $HATTN_STUB_CUDA_CAPABILITY (80), $HATTN_STUB_CUDA_SHARED (166912, the bytes of shared memory that a block may take)
// and $HATTN_STUB_CUDA_VERSION (12000) what they and the driver are. Signatures from the CUDA Driver API documentation;
// a handle is any pointer.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine.h"
#include "fat_binary.h"
#include "log.h"

namespace {

namespace engine = hattn::stub_cuda;
using engine::driver_mutex;
using engine::log;
using engine::unless_failing;

using Result = int;
using DevicePointer = unsigned long long;

constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kInvalidContext = 201, kNoBinary = 209,
                 kLaunchFailed = 719;

int setting(const char *name, int otherwise) {
    const char *value = std::getenv(name);
    return value ? std::atoi(value) : otherwise;
}

// Of a block of threads, once cuFuncSetAttribute has asked for it. 163 KiB: that of compute capability 8.0.
int shared_limit() {
    return setting("HATTN_STUB_CUDA_SHARED", 163 * 1024);
}

struct Context {
    int device;
};
constexpr int kMostDevices = 4;
Context primary_contexts[kMostDevices] = {{0}, {1}, {2}, {3}};
thread_local std::vector<Context *> current_contexts;

struct Stream {
    Context *context;
};
struct Function {
    Context *context = nullptr;
    void *kernel = nullptr;
    int shared_limit = 48 * 1024;  // cuFuncSetAttribute raises it
    bool waits = false;            // for the kernel before, as one has to that starts early
};
struct Module {
    Context *context;
    bool waits;
    void *of_engine = nullptr;
    std::map<std::string, Function> functions = {};
};

Context *current() {
    return current_contexts.empty() ? nullptr : current_contexts.back();
}

Result load(void **module, const void *image) {
    if (!current()) {
        return kInvalidContext;
    }
    bool waits = false;
    if (engine::is_fat_binary(image)) {
        const std::string chosen = engine::image_for(image, setting("HATTN_STUB_CUDA_CAPABILITY", 80));
        log("module fat=1 image=%s context=%p\n", chosen.c_str(), static_cast<void *>(current()));
        if (chosen.empty() || unless_failing("fat", kNoBinary) != kSuccess) {
            return kNoBinary;
        }
        waits = chosen != "sm_80" && chosen != "ptx_80";
    } else {
        const auto has = [&](const char *text) {
            return std::strstr(static_cast<const char *>(image), text) != nullptr;
        };
        waits = has("griddepcontrol.wait;");
        log("module fat=0 ptx=%d context=%p\n", has(".target sm_80") || (waits && has(".target sm_90")),
            static_cast<void *>(current()));
    }
    auto loading = std::make_unique<Module>(Module{current(), waits});
    const Result result = engine::load_module(&loading->of_engine, static_cast<const char *>(image));
    *module = result == kSuccess ? loading.release() : nullptr;
    return result;
}

Result copy(void *to, const void *from, size_t bytes) {
    std::memcpy(to, from, bytes);
    return kSuccess;
}

void *memory(DevicePointer pointer) {
    return reinterpret_cast<void *>(pointer);
}

// CUlaunchConfig, and a CUlaunchAttribute of it.
struct LaunchAttribute {
    int id, padding, value;
    char rest[60];
};
struct LaunchConfig {
    unsigned blocks[3], threads[3], shared_bytes;
    void *stream;
    const LaunchAttribute *attributes;
    unsigned attribute_count;
};

// What is launched has to be of the current context, as has its stream.
Result launch(void *launched, const engine::LaunchSizes &shape, void *stream, void **arguments, bool early) {
    const auto &function = *static_cast<const Function *>(launched);
    const auto count = [](const auto &each) { return each[0] * each[1] * each[2]; };
    log("launch blocks=%u threads=%u shared=%u early=%d context=%p stream=%p\n", count(shape.blocks),
        count(shape.threads), shape.shared_bytes, early, static_cast<void *>(current()), stream);
    const bool fits = shape.shared_bytes <= static_cast<unsigned>(function.shared_limit);
    constexpr uintptr_t kLastDefaultStream = 2;  // these are no pointers
    const bool ours = function.context == current() && (reinterpret_cast<uintptr_t>(stream) <= kLastDefaultStream ||
                                                        static_cast<Stream *>(stream)->context == current());
    if (!fits || !ours || (early && !function.waits)) {
        return kLaunchFailed;
    }
    std::string message;
    const Result result = engine::launch(function.kernel, shape, arguments, message);
    if (result != kSuccess) {
        log("fault %s\n", message.c_str());
        std::fprintf(stderr, "CUDA: %s\n", message.c_str());
        return result;
    }
    return unless_failing("cuLaunchKernel", kLaunchFailed);
}

}  // namespace

extern "C" {

Result cuInit(unsigned) {
    return kSuccess;
}
Result cuDriverGetVersion(int *version) {
    *version = setting("HATTN_STUB_CUDA_VERSION", 12000);
    return kSuccess;
}
Result cuGetErrorName(Result error, const char **name) {
    *name = error == kLaunchFailed ? "CUDA_ERROR_LAUNCH_FAILED" : nullptr;
    return *name ? kSuccess : kInvalidValue;
}
Result cuDeviceGetCount(int *count) {
    *count = setting("HATTN_STUB_CUDA_DEVICES", 1);
    return kSuccess;
}
Result cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return kSuccess;
}
Result cuDeviceGetName(char *name, int size, int) {
    std::snprintf(name, static_cast<size_t>(size), "stub");
    return kSuccess;
}
Result cuDeviceTotalMem_v2(size_t *bytes, int) {
    *bytes = size_t{1} << 30;
    return kSuccess;
}
Result cuDeviceGetAttribute(int *value, int attribute, int) {
    constexpr int kMultiprocessors = 16, kCapabilityMajor = 75, kCapabilityMinor = 76, kSharedBytesOptIn = 97;
    const int capability = setting("HATTN_STUB_CUDA_CAPABILITY", 80);
    *value = attribute == kMultiprocessors    ? 4
             : attribute == kCapabilityMajor  ? capability / 10
             : attribute == kCapabilityMinor  ? capability % 10
             : attribute == kSharedBytesOptIn ? shared_limit()
                                              : 0;
    return kSuccess;
}
Result cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &primary_contexts[device];
    return kSuccess;
}
Result cuCtxCreate_v2(void **created, unsigned, int device) {
    *created = new Context{device};
    current_contexts.push_back(static_cast<Context *>(*created));
    return kSuccess;
}
Result cuCtxDestroy_v2(void *context) {
    delete static_cast<Context *>(context);
    return kSuccess;
}
Result cuCtxGetApiVersion(void *, unsigned *version) {
    *version = 12000;
    return kSuccess;
}
Result cuCtxGetDevice(int *device) {
    *device = current() ? current()->device : -1;
    return current() ? kSuccess : kInvalidContext;
}
Result cuCtxGetCurrent(void **context) {
    *context = current();
    return kSuccess;
}
Result cuCtxPushCurrent_v2(void *context) {
    current_contexts.push_back(static_cast<Context *>(context));
    return kSuccess;
}
Result cuCtxPopCurrent_v2(void **popped) {
    *popped = current();
    current_contexts.pop_back();
    return kSuccess;
}
Result cuCtxSynchronize() {
    log("wait\n");
    return kSuccess;
}
Result cuStreamCreate(void **stream, unsigned) {
    static auto &all = *new std::vector<std::unique_ptr<Stream>>;  // never destroyed, as those of a driver
    const std::lock_guard lock(driver_mutex);
    all.push_back(std::make_unique<Stream>(Stream{current()}));
    *stream = all.back().get();
    return kSuccess;
}
Result cuStreamGetCtx(void *stream, void **context) {
    *context = static_cast<Stream *>(stream)->context;
    return kSuccess;
}
Result cuStreamSynchronize(void *stream) {
    log("wait stream=%p\n", stream);
    return unless_failing("cuStreamSynchronize", kLaunchFailed);
}
Result cuProfilerStop() {
    return kSuccess;
}
Result cuModuleLoadData(void **loaded, const void *image) {
    return load(loaded, image);
}
Result cuModuleLoadDataEx(void **loaded, const void *image, unsigned, int *, void **) {
    return load(loaded, image);
}
Result cuModuleUnload(void *module) {
    delete static_cast<Module *>(module);
    return kSuccess;
}
Result cuModuleGetFunction(void **function, void *module, const char *name) {
    auto &loaded = *static_cast<Module *>(module);
    const std::lock_guard lock(driver_mutex);
    Function &found = loaded.functions[name];
    found.context = loaded.context;
    found.waits = loaded.waits;
    *function = &found;
    return engine::find_kernel(&found.kernel, loaded.of_engine, name);
}
Result cuFuncSetAttribute(void *function, int attribute, int value) {
    constexpr int kMaxDynamicSharedBytes = 8;
    log("attribute %d=%d\n", attribute, value);
    if (attribute != kMaxDynamicSharedBytes || value > shared_limit()) {
        return kInvalidValue;
    }
    static_cast<Function *>(function)->shared_limit = value;
    return kSuccess;
}
Result cuMemAlloc_v2(DevicePointer *pointer, size_t bytes) {
    log("allocate %zu\n", bytes);
    const Result result = unless_failing("cuMemAlloc", kOutOfMemory);
    *pointer = result == kSuccess ? engine::allocate(bytes) : 0;
    return result;
}
Result cuMemFree_v2(DevicePointer pointer) {
    engine::release(pointer);
    return kSuccess;
}
Result cuMemcpyHtoD_v2(DevicePointer to, const void *from, size_t bytes) {
    log("wait copy\n");
    return copy(memory(to), from, bytes);
}
Result cuMemcpyDtoH_v2(void *to, DevicePointer from, size_t bytes) {
    log("wait copy\n");
    return copy(to, memory(from), bytes);
}
Result cuMemcpyDtoD_v2(DevicePointer to, DevicePointer from, size_t bytes) {
    return copy(memory(to), memory(from), bytes);
}
Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void *from, size_t bytes, void *stream) {
    log("upload bytes=%zu stream=%p\n", bytes, stream);
    return copy(memory(to), from, bytes);
}
Result cuMemcpyDtoHAsync_v2(void *to, DevicePointer from, size_t bytes, void *stream) {
    log("download stream=%p\n", stream);
    return copy(to, memory(from), bytes);
}
Result cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes, void *) {
    return copy(memory(to), memory(from), bytes);
}
Result cuMemcpy3D_v2(const void *) {
    return kSuccess;
}
Result cuPointerGetAttribute(void *, int, DevicePointer) {
    return kSuccess;
}
Result cuLaunchKernel(void *launched, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                      unsigned threads_y, unsigned threads_z, unsigned shared_bytes, void *stream, void **arguments,
                      void **) {
    return launch(launched, {{blocks_x, blocks_y, blocks_z}, {threads_x, threads_y, threads_z}, shared_bytes}, stream,
                  arguments, false);
}
// With one attribute: that the kernel starts early.
Result cuLaunchKernelEx(const LaunchConfig *config, void *launched, void **arguments, void **) {
    constexpr int kProgrammaticStreamSerialization = 6;
    if (config->attribute_count != 1 || config->attributes->id != kProgrammaticStreamSerialization) {
        return kInvalidValue;
    }
    const auto &blocks = config->blocks, &threads = config->threads;
    return launch(launched,
                  {{blocks[0], blocks[1], blocks[2]}, {threads[0], threads[1], threads[2]}, config->shared_bytes},
                  config->stream, arguments, config->attributes->value == 1);
}
}
