// Where Halide's CUDA runtime gets the driver's functions from: the driver, which is looked for when a CUDA device is
// first asked for, with two of them taken over. Halide 21.0.0 compiles PTX for at most 64 registers, and never asks for
// more shared memory than the 48 KiB that a launch has by default. (CUDA Driver API, cuModuleLoadDataEx and
// cuFuncSetAttribute.)
#include "cuda_driver.h"

#include <dlfcn.h>

#include <cstring>

namespace {

using Result = int;

void *driver_symbol(const char *name) {
    static void *const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    return library ? dlsym(library, name) : nullptr;
}

template<typename Function>
Function driver_function(const char *name) {
    return reinterpret_cast<Function>(driver_symbol(name));
}

Result load_module(void **module, const void *image, unsigned, int *, void **) {
    using Load = Result (*)(void **, const void *, unsigned, int *, void **);
    static const auto load = driver_function<Load>("cuModuleLoadDataEx");
    return load(module, image, 0, nullptr, nullptr);
}

Result launch_kernel(void *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                     unsigned threads_y, unsigned threads_z, unsigned shared_bytes, void *stream, void **arguments,
                     void **extra) {
    using SetAttribute = Result (*)(void *, int, int);
    using Launch = Result (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                              void **, void **);
    constexpr unsigned kDefaultSharedBytes = 48 * 1024;
    constexpr int kMaxDynamicSharedBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    static const auto set_attribute = driver_function<SetAttribute>("cuFuncSetAttribute");
    static const auto launch = driver_function<Launch>("cuLaunchKernel");
    if (shared_bytes > kDefaultSharedBytes) {
        const Result result = set_attribute(function, kMaxDynamicSharedBytes, static_cast<int>(shared_bytes));
        if (result != 0) {
            return result;
        }
    }
    return launch(function, blocks_x, blocks_y, blocks_z, threads_x, threads_y, threads_z, shared_bytes, stream,
                  arguments, extra);
}

}  // namespace

namespace hattn {

bool has_cuda_driver() {
    return driver_symbol("cuInit") != nullptr;
}

}  // namespace hattn

// Replaces a weak function of Halide's runtime.
extern "C" void *halide_cuda_get_symbol(void *, const char *name) {
    void *const function = driver_symbol(name);
    if (!function) {
        return nullptr;
    }
    if (std::strcmp(name, "cuModuleLoadDataEx") == 0) {
        return reinterpret_cast<void *>(load_module);
    }
    if (std::strcmp(name, "cuLaunchKernel") == 0) {
        return reinterpret_cast<void *>(launch_kernel);
    }
    return function;
}
