// Events of the driver without a GPU, where all is done when a call returns, and page-locked memory, which is any.
#include <chrono>
#include <cstddef>
#include <cstdlib>

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
int cuEventSynchronize(void *) {
    return 0;
}
int cuEventElapsedTime(float *milliseconds, void *begin, void *end) {
    const auto passed = *static_cast<StubEvent *>(end) - *static_cast<StubEvent *>(begin);
    *milliseconds = std::chrono::duration<float, std::milli>(passed).count();
    return 0;
}
int cuMemAllocHost_v2(void **memory, size_t bytes) {
    constexpr size_t kPage = 4096;
    *memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
    return *memory ? 0 : 2;  // CUDA_ERROR_OUT_OF_MEMORY
}
int cuMemFreeHost(void *memory) {
    std::free(memory);
    return 0;
}
}
