#include "device_uploads.h"

#include <algorithm>
#include <cstring>

#include "device_queue.h"

namespace hattn {

namespace {

// A longer part that nothing is copied to is not worth its bytes.
constexpr size_t kLongestGap = 4096;

}  // namespace

// Makes room for a part behind what is gathered, if it lies there.
bool DeviceUploads::extend(const DeviceQueue &queue, uint64_t part, size_t bytes) {
    const size_t alignment = queue.driver.part_alignment();
    if (first_ && (part < part_ + bytes_ || part >= part_ + static_cast<size_t>(next_ - first_) + alignment)) {
        flush(queue);
    }
    if (!first_) {
        first_ = next_;
        part_ = part;
        bytes_ = 0;
    }
    const size_t needed = part - part_ + bytes;
    if (needed > static_cast<size_t>(end_ - first_)) {
        flush(queue);
        return false;
    }
    next_ = first_ + needed;
    return true;
}

void DeviceUploads::add(const DeviceQueue &queue, uint64_t part, const void *host, size_t bytes) {
    if (queue.driver.part_alignment() == 0 || !extend(queue, part, bytes)) {
        queue.driver.upload(queue, part, host, bytes);
        return;
    }
    std::memcpy(next_ - bytes, host, bytes);
    bytes_ = static_cast<size_t>(next_ - first_);
}

void DeviceUploads::skip(const DeviceQueue &queue, uint64_t part, size_t bytes) {
    if (first_ && bytes <= kLongestGap) {
        extend(queue, part, bytes);
    }
}

void DeviceUploads::flush(const DeviceQueue &queue) {
    const char *gathered = first_;
    first_ = nullptr;
    if (gathered && bytes_ > 0) {
        queue.driver.upload(queue, part_, gathered, bytes_);
    }
}

}  // namespace hattn
