// Memory on a device that mirrors memory of the host.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "HalideRuntime.h"
#include "device.h"
#include "runtime/buffer.h"

namespace hattn {

// Owns memory on the device as large as what it mirrors, element by element at the same offsets, gaps included.
class DeviceMemory {
public:
    // The elements of a tensor; gaps between them are never copied.
    DeviceMemory(const DeviceTargetInfo &target, const hattn_tensor &tensor, const char *name);
    // `count` elements side by side; host may be null where nothing is copied.
    template<typename T>
    DeviceMemory(const DeviceTargetInfo &target, const T *host, int64_t count, const char *name)
        : DeviceMemory(target, halide_type_of<T>(), host, {{count, 1}}, name) {}
    template<typename T>
    DeviceMemory(const DeviceTargetInfo &target, const std::vector<T> &host, const char *name)
        : DeviceMemory(target, host.data(), static_cast<int64_t>(host.size()), name) {}
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory &) = delete;
    DeviceMemory &operator=(const DeviceMemory &) = delete;

    void upload();
    void download();

    // Where an element of the host's memory lies, in elements from the start.
    template<typename T>
    int32_t offset(const T *element) const {
        return static_cast<int32_t>(element - reinterpret_cast<const T *>(buffer_.host));
    }
    // The same of element [b, h, s, 0] of the tensor, which may be of the device alone.
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
        return target_;
    }

private:
    DeviceMemory(const DeviceTargetInfo &target, halide_type_t type, const void *lowest,
                 const std::vector<Dimension> &dimensions, const char *name);

    static std::vector<Dimension> dimensions_of(const hattn_tensor &tensor);

    const DeviceTargetInfo &target_;
    const char *name_;
    int64_t first_ = 0;  // of the tensor's first element
    halide_dimension_t shape_[4] = {};
    halide_buffer_t buffer_ = {};
};

// What a kernel is given of it: any dimensions from its start.
class DeviceView {
public:
    DeviceView(const DeviceMemory &memory, std::initializer_list<Dimension> dimensions);
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
