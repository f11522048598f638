// The CUDA driver's functions that the library calls itself, looked for when a CUDA device is first asked for.
// (CUDA Driver API; handles are opaque pointers.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hattn::cuda {

using Result = int;
using DevicePointer = unsigned long long;

inline constexpr Result kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kNoBinaryForGpu = 209,
                        kUnsupportedPtxVersion = 222, kInvalidHandle = 400, kNotReady = 600;

inline constexpr int kCapabilityMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR

// CUlaunchConfig, and a CUlaunchAttribute of it.
struct LaunchAttribute {
    int id;
    union alignas(8) {
        int value;
        char bytes[64];
    };
};
struct LaunchConfig {
    unsigned blocks[3], threads[3], shared_bytes;
    void *stream;
    LaunchAttribute *attributes;
    unsigned attribute_count;
};

struct Api {
    Result (*init)(unsigned);
    Result (*driver_version)(int *);
    Result (*device_count)(int *);
    Result (*device_get)(int *, int);
    Result (*device_name)(char *, int, int);
    Result (*device_attribute)(int *, int, int);
    Result (*device_memory)(size_t *, int);
    Result (*retain_primary_context)(void **, int);
    Result (*current_context)(void **);
    Result (*push_context)(void *);
    Result (*pop_context)(void **);
    Result (*context_device)(int *);
    Result (*stream_context)(void *, void **);
    Result (*stream_synchronize)(void *);
    Result (*allocate)(DevicePointer *, size_t);
    Result (*release)(DevicePointer);
    Result (*copy_to_device)(DevicePointer, const void *, size_t, void *);
    Result (*allocate_host)(void **, size_t);
    Result (*release_host)(void *);
    Result (*create_event)(void **, unsigned);
    Result (*record_event)(void *, void *);
    Result (*query_event)(void *);
    Result (*synchronize_event)(void *);
    Result (*destroy_event)(void *);
    Result (*load_module)(void **, const void *);
    Result (*module_function)(void **, void *, const char *);
    Result (*set_function_attribute)(void *, int, int);
    Result (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                     void **);
    Result (*launch_with)(const LaunchConfig *, void *, void **, void **);  // null: not in this driver

    std::string unusable;  // why there is no driver to call; "" if there is
};

const Api &api();

// A symbol of the driver, or null.
void *symbol(const char *name);

std::string error_text(Result result);

// Makes a context current for as long as it lives.
class CurrentContext {
public:
    explicit CurrentContext(void *context) : result_(api().push_context(context)) {}
    ~CurrentContext() {
        void *popped = nullptr;
        if (result_ == kSuccess) {
            api().pop_context(&popped);
        }
    }
    CurrentContext(const CurrentContext &) = delete;
    CurrentContext &operator=(const CurrentContext &) = delete;
    Result result() const {
        return result_;
    }

private:
    const Result result_;
};

}  // namespace hattn::cuda
