// A CUDA driver without a GPU, for tests of what the library asks a driver for: memory is the host's, kernels are
// engine.h's, and every module, attribute and launch is a line of the file that $HATTN_STUB_CUDA_LOG names.
// $HATTN_STUB_CUDA_FAIL names a function that fails. Signatures from the CUDA Driver API documentation; a handle is any
// pointer.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "engine.h"

namespace {

namespace engine = hattn::stub_cuda;

using Result = int;
using DevicePointer = unsigned long long;

constexpr Result kSuccess = 0, kOutOfMemory = 2, kLaunchFailed = 719;

template<typename... Values>
void log(const char *format, Values... values) {
    if (const char *path = std::getenv("HATTN_STUB_CUDA_LOG")) {
        if (std::FILE *file = std::fopen(path, "a")) {
            std::fprintf(file, format, values...);
            std::fclose(file);
        }
    }
}

Result unless_failing(const char *function, Result failure) {
    const char *failing = std::getenv("HATTN_STUB_CUDA_FAIL");
    return failing && std::strcmp(failing, function) == 0 ? failure : kSuccess;
}

int context;

struct Function {
    void *kernel = nullptr;
    int shared_limit = 48 * 1024;  // cuFuncSetAttribute raises it
};
std::map<std::pair<void *, std::string>, Function> functions;  // by module and name

Result copy(void *to, const void *from, size_t bytes) {
    std::memcpy(to, from, bytes);
    return kSuccess;
}

void *memory(DevicePointer pointer) {
    return reinterpret_cast<void *>(pointer);
}

}  // namespace

extern "C" {

Result cuInit(unsigned) {
    return kSuccess;
}
Result cuDeviceGetCount(int *count) {
    *count = 1;
    return kSuccess;
}
Result cuDeviceGet(int *device, int) {
    *device = 0;
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
    constexpr int kCapabilityMajor = 75;
    *value = attribute == kCapabilityMajor ? 8 : 0;
    return kSuccess;
}
Result cuCtxCreate_v2(void **created, unsigned, int) {
    *created = &context;
    return kSuccess;
}
Result cuCtxDestroy_v2(void *) {
    return kSuccess;
}
Result cuCtxGetApiVersion(void *, unsigned *version) {
    *version = 12000;
    return kSuccess;
}
Result cuCtxGetDevice(int *device) {
    *device = 0;
    return kSuccess;
}
Result cuCtxPushCurrent_v2(void *) {
    return kSuccess;
}
Result cuCtxPopCurrent_v2(void **popped) {
    *popped = &context;
    return kSuccess;
}
Result cuCtxSynchronize() {
    return kSuccess;
}
Result cuStreamSynchronize(void *) {
    return kSuccess;
}
Result cuProfilerStop() {
    return kSuccess;
}
Result cuModuleLoadData(void **loaded, const void *image) {
    return engine::load_module(loaded, static_cast<const char *>(image));
}
Result cuModuleLoadDataEx(void **loaded, const void *image, unsigned options, int *, void **) {
    log("module options=%u ptx=%d\n", options,
        std::strstr(static_cast<const char *>(image), ".target sm_80") != nullptr);
    return cuModuleLoadData(loaded, image);
}
Result cuModuleUnload(void *) {
    return kSuccess;
}
Result cuModuleGetFunction(void **function, void *module, const char *name) {
    Function &found = functions[{module, name}];
    *function = &found;
    return engine::find_kernel(&found.kernel, module, name);
}
Result cuFuncSetAttribute(void *function, int attribute, int value) {
    log("attribute %d=%d\n", attribute, value);
    static_cast<Function *>(function)->shared_limit = value;
    return kSuccess;
}
Result cuMemAlloc_v2(DevicePointer *pointer, size_t bytes) {
    *pointer = engine::allocate(bytes);
    return unless_failing("cuMemAlloc", kOutOfMemory);
}
Result cuMemFree_v2(DevicePointer pointer) {
    engine::release(pointer);
    return kSuccess;
}
Result cuMemcpyHtoD_v2(DevicePointer to, const void *from, size_t bytes) {
    return copy(memory(to), from, bytes);
}
Result cuMemcpyDtoH_v2(void *to, DevicePointer from, size_t bytes) {
    return copy(to, memory(from), bytes);
}
Result cuMemcpyDtoD_v2(DevicePointer to, DevicePointer from, size_t bytes) {
    return copy(memory(to), memory(from), bytes);
}
Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void *from, size_t bytes, void *) {
    return copy(memory(to), from, bytes);
}
Result cuMemcpyDtoHAsync_v2(void *to, DevicePointer from, size_t bytes, void *) {
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
Result cuLaunchKernel(void *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                      unsigned threads_y, unsigned threads_z, unsigned shared_bytes, void *, void **arguments,
                      void **) {
    const auto &[kernel, shared_limit] = *static_cast<Function *>(function);
    log("launch blocks=%u threads=%u shared=%u\n", blocks_x * blocks_y * blocks_z, threads_x * threads_y * threads_z,
        shared_bytes);
    if (static_cast<int>(shared_bytes) > shared_limit) {
        return kLaunchFailed;
    }
    std::string message;
    const Result result = engine::launch(
        kernel, {{blocks_x, blocks_y, blocks_z}, {threads_x, threads_y, threads_z}, shared_bytes}, arguments, message);
    if (result != kSuccess) {
        log("fault %s\n", message.c_str());
        std::fprintf(stderr, "CUDA: %s\n", message.c_str());
        return result;
    }
    return unless_failing("cuLaunchKernel", kLaunchFailed);
}
}
