// Functions of a device's driver, called as an application calls them.
#pragma once

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace hattn::autotune {

inline constexpr const char *kCudaDriver = "libcuda.so.1", *kOpenClDriver = "libOpenCL.so.1";

// By its name; null where there is none.
template<typename Signature>
Signature *find_driver_function(const char *library, const char *name) {
    void *const handle = dlopen(library, RTLD_LAZY);  // loaded by hattn, and to stay
    return handle ? reinterpret_cast<Signature *>(dlsym(handle, name)) : nullptr;
}

// As above; throws std::runtime_error.
template<typename Signature>
Signature *driver_function(const char *library, const char *name) {
    Signature *const found = find_driver_function<Signature>(library, name);
    if (!found) {
        throw std::runtime_error(std::string(library) + ": there is no " + name);
    }
    return found;
}

template<typename Signature>
Signature *cuda_function(const char *name) {
    return driver_function<Signature>(kCudaDriver, name);
}

template<typename Signature>
Signature *opencl_function(const char *name) {
    return driver_function<Signature>(kOpenClDriver, name);
}

// Throws std::runtime_error unless a driver's function succeeded.
inline void check_driver(int result, const char *what) {
    if (result != 0) {
        throw std::runtime_error(std::string(what) + ": error " + std::to_string(result));
    }
}

// Makes a CUDA context current for as long as it lives.
class CudaContextScope {
public:
    explicit CudaContextScope(void *context) {
        check_driver(cuda_function<int(void *)>("cuCtxPushCurrent_v2")(context), "cuCtxPushCurrent");
    }
    ~CudaContextScope() {
        void *popped = nullptr;
        if (auto *const pop = find_driver_function<int(void **)>(kCudaDriver, "cuCtxPopCurrent_v2")) {
            pop(&popped);
        }
    }
    CudaContextScope(const CudaContextScope &) = delete;
    CudaContextScope &operator=(const CudaContextScope &) = delete;
};

}  // namespace hattn::autotune
