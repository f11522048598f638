#include "device_uploads.h"

#include <cstring>

#include "device_queue.h"

namespace hattn {

namespace {

// Bytes between parts that go together: of parts that no kernel of an execute reads.
constexpr uint64_t kMostGap = 4096;

}  // namespace

// Makes room for a part behind what is gathered, if it lies there.
bool DeviceUploads::extend(const DeviceQueue &queue, uint64_t part, size_t bytes) {
    const uint64_t end = first_ ? part_ + static_cast<size_t>(next_ - first_) : part;
    if (part < end || part >= end + kMostGap) {
        flush(queue);
    }
    if (!first_) {
        first_ = next_;
        part_ = part;
    }
    const size_t needed = part - part_ + bytes;
    if (needed > static_cast<size_t>(end_ - first_)) {
        flush(queue);
        return false;
    }
    char *const before = next_;
    next_ = first_ + needed;
    std::memset(before, 0, static_cast<size_t>(next_ - before) - bytes);
    return true;
}

void DeviceUploads::add(const DeviceQueue &queue, uint64_t part, const void *host, size_t bytes) {
    if (queue.driver.part_alignment() == 0 || !extend(queue, part, bytes)) {
        queue.driver.upload(queue, part, host, bytes);
        return;
    }
    std::memcpy(next_ - bytes, host, bytes);
}

void DeviceUploads::flush(const DeviceQueue &queue) {
    const char *gathered = first_;
    first_ = nullptr;
    if (gathered && next_ > gathered) {
        queue.driver.upload(queue, part_, gathered, static_cast<size_t>(next_ - gathered));
    }
}

}  // namespace hattn
