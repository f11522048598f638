#include "device_uploads.h"

#include <cstring>

#include "device_queue.h"

namespace hattn {

// Makes room for a part behind what is gathered, if it lies there.
bool DeviceUploads::extend(const DeviceQueue &queue, uint64_t part, size_t bytes) {
    const size_t alignment = queue.driver.part_alignment();
    const uint64_t end = first_ ? part_ + static_cast<size_t>(next_ - first_) : part;
    if (part < end || part >= end + alignment) {
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
    next_ = first_ + needed;
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
