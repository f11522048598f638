// Arguments of kernels.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "HalideRuntime.h"

namespace hattn {

struct Dimension {
    int64_t extent, stride;
};

// A halide_buffer_t over memory of ours. Coordinates start at 0: offsets are shifted instead, which keeps index
// arithmetic small.
class Buffer {
public:
    template<typename T>
    Buffer(T *data, std::initializer_list<Dimension> dimensions) {
        int count = 0;
        for (const Dimension &dimension : dimensions) {
            shape_[count++] = {0, static_cast<int32_t>(dimension.extent), static_cast<int32_t>(dimension.stride), 0};
        }
        buffer_.host = const_cast<uint8_t *>(reinterpret_cast<const uint8_t *>(data));
        buffer_.type = halide_type_of<std::remove_const_t<T>>();
        buffer_.dimensions = count;
        buffer_.dim = shape_;
    }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    operator void *() {
        return &buffer_;
    }

private:
    halide_buffer_t buffer_ = {};
    halide_dimension_t shape_[3] = {};
};

}  // namespace hattn
