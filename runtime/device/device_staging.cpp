#include "device_staging.h"

#include <algorithm>

#include "device_workspace.h"
#include "runtime/checked.h"

namespace hattn {

namespace {

constexpr const char *kStaged = "rows to be appended";
constexpr int64_t kTableAlignment = 64, kHostPage = 4096;

void add(size_t &total, int64_t bytes, int64_t alignment) {
    const int64_t rounded = round_up(std::max<int64_t>(bytes, 1), alignment);
    total = static_cast<size_t>(checked_add(static_cast<int64_t>(total), rounded, kStaged));
}

}  // namespace

void StagingBytes::add_table(int64_t bytes) {
    add_on_host(bytes);
    add_on_device(bytes);
}

void StagingBytes::add_on_host(int64_t bytes) {
    add(host, bytes, kTableAlignment);
}

void StagingBytes::add_on_device(int64_t bytes) {
    add(device, bytes, kPartAlignment);
}

DeviceStaging::~DeviceStaging() {
    if (in_flight_) {
        queue_.drain();
    }
    for (const Slot &slot : slots_) {
        if (slot.event) {
            queue_.driver.release_event(queue_, slot.event);
        }
        if (slot.memory) {
            queue_.driver.release_host(queue_, slot.memory);
        }
    }
    if (memory_) {
        queue_.driver.release(queue_, memory_);
    }
}

void DeviceStaging::wait() {
    if (in_flight_) {
        queue_.driver.wait(queue_);
        in_flight_ = false;
    }
}

DeviceStaging::Slot &DeviceStaging::free_slot(size_t bytes) {
    Slot &slot = slots_[next_];
    next_ = (next_ + 1) % kSlots;
    if (slot.is_read) {
        queue_.driver.wait_for(queue_, slot.event);
        slot.is_read = false;
    }
    if (slot.size < bytes) {
        if (slot.memory) {
            queue_.driver.release_host(queue_, slot.memory);
        }
        slot.memory = nullptr;
        slot.size = 0;
        const auto size = static_cast<size_t>(round_up(static_cast<int64_t>(bytes), kHostPage));
        slot.memory = queue_.driver.allocate_host(queue_, size);
        slot.size = size;
    }
    return slot;
}

void DeviceStaging::provide_device_memory(size_t bytes) {
    if (size_ >= bytes) {
        return;
    }
    wait();  // for those that use the smaller one
    if (memory_) {
        queue_.driver.release(queue_, memory_);
    }
    memory_ = size_ = 0;
    memory_ = queue_.driver.allocate(queue_, bytes);
    size_ = bytes;
}

StagedCall::StagedCall(DeviceStaging &staging, const StagingBytes &bytes)
    : staging_(staging),
      slot_(staging.free_slot(bytes.host)),
      host_(slot_.memory, slot_.size, std::pmr::null_memory_resource()) {
    staging.provide_device_memory(bytes.device);
    DeviceQueue &queue = staging.queue_;
    queue.workspace = reinterpret_cast<void *>(staging.memory_);
    queue.workspace_size = staging.size_;
    queue.workspace_used = 0;
    queue.took_memory = false;
}

StagedCall::~StagedCall() {
    if (!finished_) {
        staging_.queue_.drain();
    }
    staging_.queue_.workspace = nullptr;
    staging_.queue_.workspace_size = staging_.queue_.workspace_used = 0;
}

void StagedCall::finish(bool waits) {
    DeviceQueue &queue = staging_.queue_;
    staging_.in_flight_ = true;
    if (waits || queue.took_memory) {
        staging_.wait();
    } else {
        queue.driver.mark(queue, slot_.event);
        slot_.is_read = true;
    }
    finished_ = true;
}

}  // namespace hattn
