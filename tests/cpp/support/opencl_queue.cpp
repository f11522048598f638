#include "opencl_queue.h"

#include <dlfcn.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace hattn::test {

namespace {

// (OpenCL 1.2 specification)
template<typename Signature>
Signature *function(const char *name) {
    static void *const library = dlopen("libOpenCL.so.1", RTLD_LAZY);
    void *const symbol = library ? dlsym(library, name) : nullptr;
    if (!symbol) {
        throw std::runtime_error(std::string("there is no ") + name);
    }
    return reinterpret_cast<Signature *>(symbol);
}

void check(int32_t result, const char *what) {
    if (result != 0) {
        throw std::runtime_error(std::string(what) + ": OpenCL error " + std::to_string(result));
    }
}

std::shared_ptr<void> owned(void *object, const char *release) {
    return {object, function<int32_t(void *)>(release)};
}

}  // namespace

OpenClQueue::OpenClQueue(uint64_t properties) {
    void *platform = nullptr, *device = nullptr;
    check(function<int32_t(uint32_t, void **, uint32_t *)>("clGetPlatformIDs")(1, &platform, nullptr), "platform");
    check(function<int32_t(void *, uint64_t, uint32_t, void **, uint32_t *)>("clGetDeviceIDs")(platform, 0xFFFFFFFF, 1,
                                                                                               &device, nullptr),
          "device");
    int32_t result = 0;
    context_ = owned(function<void *(const void *, uint32_t, void **, void *, void *, int32_t *)>("clCreateContext")(
                         nullptr, 1, &device, nullptr, nullptr, &result),
                     "clReleaseContext");
    check(result, "context");
    queue_ = owned(function<void *(void *, void *, uint64_t, int32_t *)>("clCreateCommandQueue")(context_.get(), device,
                                                                                                 properties, &result),
                   "clReleaseCommandQueue");
    check(result, "queue");
}

hattn_queue OpenClQueue::handle() const {
    hattn_queue queue = HATTN_QUEUE_INIT;
    queue.queue = queue_.get();
    return queue;
}

void OpenClQueue::finish() const {
    check(function<int32_t(void *)>("clFinish")(queue_.get()), "finish");
}

std::shared_ptr<void> OpenClQueue::memory(size_t bytes, const void *contents) const {
    int32_t result = 0;
    auto memory = owned(function<void *(void *, uint64_t, size_t, void *, int32_t *)>("clCreateBuffer")(
                            context_.get(), 1, std::max<size_t>(bytes, 1), nullptr, &result),
                        "clReleaseMemObject");
    check(result, "memory");
    if (contents && bytes > 0) {
        write(memory.get(), contents, bytes);
    }
    return memory;
}

std::shared_ptr<void> OpenClQueue::part(size_t offset, size_t bytes) const {
    constexpr uint32_t kRegion = 0x1220;
    const std::shared_ptr<void> whole = memory(offset + bytes);  // which its part keeps
    const size_t region[] = {offset, bytes};
    int32_t result = 0;
    auto part = owned(function<void *(void *, uint64_t, uint32_t, const void *, int32_t *)>("clCreateSubBuffer")(
                          whole.get(), 1, kRegion, region, &result),
                      "clReleaseMemObject");
    check(result, "part");
    return part;
}

void OpenClQueue::read(void *memory, void *to, size_t bytes) const {
    check(function<int32_t(void *, void *, uint32_t, size_t, size_t, void *, uint32_t, void *, void *)>(
              "clEnqueueReadBuffer")(queue_.get(), memory, 1, 0, bytes, to, 0, nullptr, nullptr),
          "read");
}

void OpenClQueue::write(void *memory, const void *from, size_t bytes) const {
    check(function<int32_t(void *, void *, uint32_t, size_t, size_t, const void *, uint32_t, void *, void *)>(
              "clEnqueueWriteBuffer")(queue_.get(), memory, 1, 0, bytes, from, 0, nullptr, nullptr),
          "write");
}

OpenClTensor::OpenClTensor(const OpenClQueue &queue, cases::TensorData &tensor, size_t first_byte)
    : queue_(queue), tensor_(tensor), first_byte_(first_byte), view_(tensor.view) {
    if (!tensor.given()) {
        return;
    }
    const cases::Storage &storage = *tensor.storage;
    std::vector<std::byte> contents(first_byte + storage.size());
    std::copy(storage.data(), storage.data() + storage.size(), contents.begin() + static_cast<ptrdiff_t>(first_byte));
    memory_ = queue.memory(contents.size(), contents.data());
    view_.device = HATTN_OPENCL;
    view_.byte_offset = first_byte + static_cast<size_t>(static_cast<std::byte *>(tensor.view.data) - storage.data());
    view_.data = memory_.get();
}

void OpenClTensor::fetch() const {
    if (memory_ && tensor_.storage->size() > 0) {
        std::vector<std::byte> contents(first_byte_ + tensor_.storage->size());
        queue_.read(memory_.get(), contents.data(), contents.size());
        std::copy(contents.begin() + static_cast<ptrdiff_t>(first_byte_), contents.end(), tensor_.storage->data());
    }
}

}  // namespace hattn::test
