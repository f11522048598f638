// Memory on a device: a tensor that is there, or what mirrors memory of the host.
#pragma once

#include <HalideRuntime.h>

#include <cstdint>
#include <initializer_list>
#include <memory_resource>
#include <vector>

#include "device.h"
#include "device_queue.h"
#include "runtime/buffer.h"
#include "runtime/tensor.h"

namespace hattn {

// Elements of the views of one memory.
inline const halide_type_t kFloat = halide_type_of<float>(), kHalf = halide_type_of<uint16_t>();

// A mirror is as large as what it mirrors, element by element at the same offsets, gaps included. It is a part of the
// queue's workspace as long as there is room, else memory of its own.
class DeviceMemory {
public:
    // The elements of a tensor, where they are if that is the device; gaps between them are never copied.
    DeviceMemory(DeviceQueue &queue, const hattn_tensor &tensor, const char *name);
    // `count` elements side by side; host may be null where nothing is copied.
    template<typename T>
    DeviceMemory(DeviceQueue &queue, const T *host, int64_t count, const char *name)
        : queue_(queue), name_(name), lowest_(reinterpret_cast<uintptr_t>(host)) {
        buffer_.type = halide_type_of<T>();
        buffer_.host = reinterpret_cast<uint8_t *>(lowest_);
        const Dimension elements{count, 1};
        allocate(set_shape(&elements, 1), true);
    }
    template<typename T>
    DeviceMemory(DeviceQueue &queue, const std::pmr::vector<T> &host, const char *name)
        : DeviceMemory(queue, host.data(), static_cast<int64_t>(host.size()), name) {}
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory &) = delete;
    DeviceMemory &operator=(const DeviceMemory &) = delete;

    // In the order of the queue, from the next launch on at the latest; of a tensor on the device nothing.
    void upload();
    void download();

    // Where an element of what is mirrored lies, in bytes from the start.
    int64_t byte_offset(const void *element) const {
        return start_ + static_cast<int64_t>(reinterpret_cast<uintptr_t>(element) - lowest_);
    }
    // The same, in elements, of element [b, h, s, 0] of the tensor, which may be of the device alone.
    int64_t offset(const hattn_tensor &tensor, int64_t b, int64_t h, int64_t s) const {
        return first_ + b * tensor.stride[0] + h * tensor.stride[1] + s * tensor.stride[2];
    }
    uint64_t handle() const {
        return buffer_.device;
    }
    halide_type_t type() const {
        return buffer_.type;
    }
    const DeviceTargetInfo &target() const {
        return queue_.target;
    }

private:
    int64_t set_shape(const Dimension *dimensions, size_t count);
    void allocate(int64_t span, bool may_be_part);
    size_t take_part(size_t bytes) const;
    void adopt(const hattn_tensor &tensor, const ByteRange &range, int64_t span);
    void wrap();
    void check_reach(int64_t elements) const;

    DeviceQueue &queue_;
    const char *name_;
    uintptr_t lowest_ = 0;  // address of what is mirrored, or what stands for it
    int64_t start_ = 0;     // where that lies, in bytes
    int64_t first_ = 0;     // where the tensor's first element lies, in elements
    uint64_t native_ = 0;   // memory that is not Halide's
    bool is_part_ = false;  // of the workspace
    halide_dimension_t shape_[4] = {};
    halide_buffer_t buffer_ = {};
};

// What a kernel is given of it: any dimensions from its start.
class DeviceView {
public:
    DeviceView(const DeviceMemory &memory, std::initializer_list<Dimension> dimensions)
        : DeviceView(memory, memory.type(), dimensions) {}
    // In elements of another type.
    DeviceView(const DeviceMemory &memory, halide_type_t type, std::initializer_list<Dimension> dimensions);
    DeviceView(const DeviceView &) = delete;
    DeviceView &operator=(const DeviceView &) = delete;
    operator void *() {
        return &buffer_;
    }

private:
    halide_dimension_t shape_[3] = {};
    halide_buffer_t buffer_ = {};
};

}  // namespace hattn
