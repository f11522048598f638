// Events of the driver without a GPU, where all is done when a call returns, and page-locked memory, which is any.
#include <chrono>
#include <cstddef>
#include <cstdlib>

#include "log.h"

namespace {

constexpr int kNoMemory = 2, kNotReady = 600;

}  // namespace

using hattn::stub_cuda::log;
using hattn::stub_cuda::unless_failing;
using StubEvent = std::chrono::steady_clock::time_point;

extern "C" {

int cuEventCreate(void **event, unsigned) {
    *event = new StubEvent;
    return 0;
}
int cuEventDestroy_v2(void *event) {
    delete static_cast<StubEvent *>(event);
    return 0;
}
int cuEventRecord(void *event, void *) {
    *static_cast<StubEvent *>(event) = std::chrono::steady_clock::now();
    return 0;
}
// Fails, if it is to, as one does that the stream has not got to.
int cuEventQuery(void *) {
    return unless_failing("cuEventQuery", kNotReady);
}
int cuEventSynchronize(void *) {
    log("wait event\n");
    return 0;
}
int cuEventElapsedTime(float *milliseconds, void *begin, void *end) {
    const auto passed = *static_cast<StubEvent *>(end) - *static_cast<StubEvent *>(begin);
    *milliseconds = std::chrono::duration<float, std::milli>(passed).count();
    return 0;
}
int cuMemAllocHost_v2(void **memory, size_t bytes) {
    log("allocate host %zu\n", bytes);
    if (unless_failing("cuMemAllocHost", kNoMemory) != 0) {
        return kNoMemory;
    }
    constexpr size_t kPage = 4096;
    *memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
    return *memory ? 0 : kNoMemory;
}
int cuMemFreeHost(void *memory) {
    std::free(memory);
    return 0;
}
}
