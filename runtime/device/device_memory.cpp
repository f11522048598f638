#include "device_memory.h"

#include <algorithm>
#include <cstdlib>

#include "device_workspace.h"
#include "runtime/checked.h"
#include "runtime/tensor.h"

namespace hattn {

namespace {

halide_type_t type_of(hattn_dtype dtype) {
    switch (dtype_bits(dtype)) {
    case 32:
        return halide_type_of<float>();
    case 16:
        return halide_type_of<uint16_t>();
    default:
        return halide_type_of<uint8_t>();
    }
}

// Dimensions of stride 0 repeat what is there; of negative ones the last element comes first. What is smaller than a
// byte is counted in bytes: rows start at them.
struct TensorShape {
    Dimension dimensions[4];
    size_t count = 0;

    explicit TensorShape(const hattn_tensor &tensor) {
        const int64_t per_byte = 8 / std::min<int64_t>(dtype_bits(tensor.dtype), 8);
        for (int d = 3; d >= 0 && !is_empty(tensor); --d) {
            const int64_t extent = d == 3 ? ceil_div(tensor.extent[d], per_byte) : tensor.extent[d];
            const int64_t stride = d == 3 ? tensor.stride[d] : tensor.stride[d] / per_byte;
            if (extent > 1 && stride != 0) {
                dimensions[count++] = {extent, std::llabs(stride)};
            }
        }
    }
};

}  // namespace

DeviceMemory::DeviceMemory(DeviceQueue &queue, const hattn_tensor &tensor, const char *name)
    : queue_(queue), name_(name) {
    const bool has_elements = tensor.data && !is_empty(tensor);
    const ByteRange range = byte_range(tensor);
    buffer_.type = type_of(tensor.dtype);
    // Elements of a cl_mem are told apart as if the handle were the address of the tensor's first one.
    const auto address = reinterpret_cast<uintptr_t>(tensor.data);
    const bool addressed = tensor.device != HATTN_OPENCL;
    lowest_ = !has_elements ? 0 : addressed ? range.begin : address + range.begin - tensor.byte_offset;
    const TensorShape shape(tensor);
    const int64_t span = set_shape(shape.dimensions, shape.count);
    if (!has_elements || tensor.device == HATTN_CPU) {
        buffer_.host = reinterpret_cast<uint8_t *>(lowest_);
        allocate(span, !has_elements || span == 1);
    } else {
        adopt(tensor, range, span);
    }
    if (has_elements) {
        first_ = byte_offset(tensor.data) * 8 / dtype_bits(tensor.dtype);
    }
}

DeviceMemory::~DeviceMemory() {
    if (native_) {
        halide_device_detach_native(queue_.user_context(), &buffer_);
    } else {
        halide_device_free(queue_.user_context(), &buffer_);
    }
    if (is_part_) {
        queue_.driver.release_part(native_);
    }
    discard_device_error();
}

// Returns the elements from the first to the last.
int64_t DeviceMemory::set_shape(const Dimension *dimensions, size_t count) {
    int64_t span = 1;
    for (size_t i = 0; i < count; ++i) {
        const int64_t extent = std::max<int64_t>(dimensions[i].extent, 1);
        shape_[buffer_.dimensions++] = {0, static_cast<int32_t>(extent), static_cast<int32_t>(dimensions[i].stride), 0};
        span += (extent - 1) * dimensions[i].stride;
        check_reach(span);
    }
    buffer_.dim = shape_;
    return span;
}

void DeviceMemory::check_reach(int64_t elements) const {
    require(elements <= kMaxDeviceElements, HATTN_NOT_SUPPORTED, name_, ": spans at least ", elements,
            " elements, but kernels of ", queue_.target.name, " reach ", kMaxDeviceElements);
}

// A part of the workspace, or memory of its own.
void DeviceMemory::allocate(int64_t span, bool may_be_part) {
    const size_t bytes = static_cast<size_t>(span) * buffer_.type.bytes();
    if (may_be_part && queue_.workspace && bytes <= queue_.workspace_size - queue_.workspace_used) {
        native_ = queue_.driver.part(queue_.workspace, take_part(bytes), bytes);
        is_part_ = true;
        try {
            wrap();
        } catch (...) {
            queue_.driver.release_part(native_);
            throw;
        }
        return;
    }
    queue_.took_memory = true;
    check_device(halide_device_malloc(queue_.user_context(), &buffer_, queue_.target.interface()), queue_.target,
                 name_);
}

// Where in the workspace: what the host has as well at its beginning, so that what is copied goes together, the rest at
// its end.
size_t DeviceMemory::take_part(size_t bytes) const {
    const size_t alignment = queue_.driver.part_alignment() > 0 ? queue_.driver.part_alignment() : kPartAlignment;
    const size_t last = (queue_.workspace_size - bytes) / alignment * alignment;
    if (!buffer_.host && last >= queue_.workspace_used) {
        return queue_.workspace_size = last;
    }
    const size_t first = queue_.workspace_used;
    queue_.workspace_used = std::min<size_t>(queue_.workspace_size, round_up(first + bytes, alignment));
    return first;
}

// Memory with addresses starts at the lowest element, other memory where it starts.
void DeviceMemory::adopt(const hattn_tensor &tensor, const ByteRange &range, int64_t span) {
    if (tensor.device == HATTN_OPENCL) {
        native_ = reinterpret_cast<uint64_t>(tensor.data);
        start_ = static_cast<int64_t>(range.begin);
        queue_.driver.check_memory(queue_, native_, range.end, name_);
        check_reach(start_ / buffer_.type.bytes() + span);
    } else {
        native_ = lowest_;
    }
    wrap();
}

void DeviceMemory::wrap() {
    check_device(halide_device_wrap_native(queue_.user_context(), &buffer_, native_, queue_.target.interface()),
                 queue_.target, name_);
}

void DeviceMemory::upload() {
    if (!buffer_.host) {
        return;
    }
    if (is_part_) {
        queue_.uploads.add(queue_, native_, buffer_.host, buffer_.size_in_bytes());
        return;
    }
    buffer_.set_host_dirty();
    check_device(halide_copy_to_device(queue_.user_context(), &buffer_, queue_.target.interface()), queue_.target,
                 name_);
}

void DeviceMemory::download() {
    if (buffer_.host) {
        buffer_.set_device_dirty();
        check_device(halide_copy_to_host(queue_.user_context(), &buffer_), queue_.target, name_);
    }
}

DeviceView::DeviceView(const DeviceMemory &memory, halide_type_t type, std::initializer_list<Dimension> dimensions) {
    for (const Dimension &dimension : dimensions) {
        shape_[buffer_.dimensions++] = {0, static_cast<int32_t>(dimension.extent),
                                        static_cast<int32_t>(dimension.stride), 0};
    }
    buffer_.type = type;
    buffer_.dim = shape_;
    buffer_.device = memory.handle();
    buffer_.device_interface = memory.target().interface();
}

}  // namespace hattn
