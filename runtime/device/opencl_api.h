// The OpenCL functions that the library calls itself, looked for when an OpenCL device is first asked for.
// (OpenCL 1.2 specification; handles are opaque pointers.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hattn::opencl {

using Result = int32_t;
using Count = uint32_t;

inline constexpr Result kSuccess = 0, kMemoryFailed = -4, kOutOfResources = -5, kOutOfHostMemory = -6,
                        kInvalidBufferSize = -61;  // more than a device gives at once

struct Api {
    Result (*platforms)(Count, void **, Count *);
    Result (*platform_info)(void *, Count, size_t, void *, size_t *);
    Result (*devices)(void *, uint64_t, Count, void **, Count *);
    Result (*device_info)(void *, Count, size_t, void *, size_t *);
    void *(*create_context)(const intptr_t *, Count, void *const *, void *, void *, Result *);
    void *(*create_queue)(void *, void *, uint64_t, Result *);
    Result (*queue_info)(void *, Count, size_t, void *, size_t *);
    Result (*context_info)(void *, Count, size_t, void *, size_t *);
    Result (*write_buffer)(void *, void *, Count, size_t, size_t, const void *, Count, const void *, void *);
    Result (*finish)(void *);
    Result (*marker)(void *, void **);
    Result (*wait_for_events)(Count, void *const *);
    Result (*release_event)(void *);
    void *(*create_buffer)(void *, uint64_t, size_t, void *, Result *);
    void *(*create_sub_buffer)(void *, uint64_t, Count, const void *, Result *);
    Result (*memory_info)(void *, Count, size_t, void *, size_t *);
    Result (*release_memory)(void *);
    void *(*create_program)(void *, Count, const char **, const size_t *, Result *);
    Result (*build_program)(void *, Count, void *const *, const char *, void *, void *);
    Result (*build_info)(void *, void *, Count, size_t, void *, size_t *);
    Result (*release_program)(void *);
    void *(*create_kernel)(void *, const char *, Result *);
    Result (*set_argument)(void *, Count, size_t, const void *);
    Result (*launch)(void *, void *, Count, const size_t *, const size_t *, const size_t *, Count, const void *,
                     void *);

    std::string unusable;  // why there is no OpenCL to call; "" if there is
};

const Api &api();

std::string error_text(Result result);

}  // namespace hattn::opencl
