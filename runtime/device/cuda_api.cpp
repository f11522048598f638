#include "cuda_api.h"

#include <dlfcn.h>

namespace hattn::cuda {

namespace {

// The first driver that reads the PTX of our kernels, version 7.0 and sm_80.
constexpr int kOldestDriver = 11000;

template<typename Function>
bool find(Function *&function, const char *name) {
    function = reinterpret_cast<Function *>(symbol(name));
    return function != nullptr;
}

std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Api load_api() {
    Api api = {};
    if (!symbol("cuInit")) {
        api.unusable = "there is no CUDA driver (libcuda.so.1)";
        return api;
    }
    const bool complete =
        find(api.init, "cuInit") && find(api.driver_version, "cuDriverGetVersion") &&
        find(api.device_count, "cuDeviceGetCount") && find(api.device_get, "cuDeviceGet") &&
        find(api.device_name, "cuDeviceGetName") && find(api.device_attribute, "cuDeviceGetAttribute") &&
        find(api.device_memory, "cuDeviceTotalMem_v2") &&
        find(api.retain_primary_context, "cuDevicePrimaryCtxRetain") && find(api.current_context, "cuCtxGetCurrent") &&
        find(api.push_context, "cuCtxPushCurrent_v2") && find(api.pop_context, "cuCtxPopCurrent_v2") &&
        find(api.context_device, "cuCtxGetDevice") && find(api.stream_context, "cuStreamGetCtx") &&
        find(api.stream_synchronize, "cuStreamSynchronize") && find(api.allocate, "cuMemAlloc_v2") &&
        find(api.release, "cuMemFree_v2") && find(api.copy_to_device, "cuMemcpyHtoDAsync_v2") &&
        find(api.allocate_host, "cuMemAllocHost_v2") && find(api.release_host, "cuMemFreeHost") &&
        find(api.create_event, "cuEventCreate") && find(api.record_event, "cuEventRecord") &&
        find(api.query_event, "cuEventQuery") && find(api.synchronize_event, "cuEventSynchronize") &&
        find(api.destroy_event, "cuEventDestroy_v2") && find(api.load_module, "cuModuleLoadData") &&
        find(api.module_function, "cuModuleGetFunction") && find(api.set_function_attribute, "cuFuncSetAttribute") &&
        find(api.launch, "cuLaunchKernel");
    find(api.launch_with, "cuLaunchKernelEx");
    int version = 0;
    if (api.driver_version) {
        api.driver_version(&version);
    }
    if (!complete || version < kOldestDriver) {
        api.unusable = "the CUDA driver is too old: it is for CUDA " + version_text(version) + ", but kernels need " +
                       version_text(kOldestDriver);
        return api;
    }
    if (const Result result = api.init(0); result != kSuccess) {
        api.unusable = result == kNoDevice ? "there is no GPU" : "cuInit: " + error_text(result);
    }
    return api;
}

}  // namespace

void *symbol(const char *name) {
    static void *const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    return library ? dlsym(library, name) : nullptr;
}

const Api &api() {
    static const Api loaded = load_api();
    return loaded;
}

std::string error_text(Result result) {
    static const auto name_of = reinterpret_cast<Result (*)(Result, const char **)>(symbol("cuGetErrorName"));
    const char *name = nullptr;
    const bool known = name_of && name_of(result, &name) == kSuccess && name;
    return known ? name : "CUDA error " + std::to_string(result);
}

}  // namespace hattn::cuda
