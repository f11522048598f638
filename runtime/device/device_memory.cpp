#include "device_memory.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "runtime/tensor.h"

namespace hattn {

namespace {

halide_type_t type_of(hattn_dtype dtype) {
    return dtype == HATTN_BOOL ? halide_type_of<uint8_t>() : halide_type_of<float>();
}

}  // namespace

// Dimensions of stride 0 repeat what is there; of negative ones the last element comes first.
std::vector<Dimension> DeviceMemory::dimensions_of(const hattn_tensor &tensor) {
    std::vector<Dimension> dimensions;
    for (int d = 3; d >= 0; --d) {
        if (tensor.extent[d] > 1 && tensor.stride[d] != 0) {
            dimensions.push_back({tensor.extent[d], std::llabs(tensor.stride[d])});
        }
    }
    return dimensions;
}

DeviceMemory::DeviceMemory(const DeviceTargetInfo &target, const hattn_tensor &tensor, const char *name)
    : DeviceMemory(target, type_of(tensor.dtype),
                   is_empty(tensor) ? nullptr : reinterpret_cast<const void *>(byte_range(tensor).begin),
                   is_empty(tensor) ? std::vector<Dimension>{} : dimensions_of(tensor), name) {
    if (tensor.data && !is_empty(tensor)) {
        first_ = (reinterpret_cast<uint8_t *>(tensor.data) - buffer_.host) * 8 / dtype_bits(tensor.dtype);
    }
}

DeviceMemory::DeviceMemory(const DeviceTargetInfo &target, halide_type_t type, const void *lowest,
                           const std::vector<Dimension> &dimensions, const char *name)
    : target_(target), name_(name) {
    int64_t span = 1;
    for (const Dimension &dimension : dimensions) {
        shape_[buffer_.dimensions++] = {0, static_cast<int32_t>(std::max<int64_t>(dimension.extent, 1)),
                                        static_cast<int32_t>(dimension.stride), 0};
        span += (std::max<int64_t>(dimension.extent, 1) - 1) * dimension.stride;
        require(span <= std::numeric_limits<int32_t>::max(), HATTN_NOT_SUPPORTED, name, ": spans at least ", span,
                " elements, but kernels of ", target.name, " reach 2^31 - 1");
    }
    buffer_.type = type;
    buffer_.dim = shape_;
    buffer_.host = static_cast<uint8_t *>(const_cast<void *>(lowest));
    check_device(halide_device_malloc(nullptr, &buffer_, target.interface()), target, name);
}

DeviceMemory::~DeviceMemory() {
    halide_device_free(nullptr, &buffer_);
    discard_device_message();
}

void DeviceMemory::upload() {
    if (buffer_.host) {
        buffer_.set_host_dirty();
        check_device(halide_copy_to_device(nullptr, &buffer_, target_.interface()), target_, name_);
    }
}

void DeviceMemory::download() {
    buffer_.set_device_dirty();
    check_device(halide_copy_to_host(nullptr, &buffer_), target_, name_);
}

DeviceView::DeviceView(const DeviceMemory &memory, std::initializer_list<Dimension> dimensions) {
    for (const Dimension &dimension : dimensions) {
        shape_[buffer_.dimensions++] = {0, static_cast<int32_t>(dimension.extent),
                                        static_cast<int32_t>(dimension.stride), 0};
    }
    buffer_.type = memory.type();
    buffer_.dim = shape_;
    buffer_.device = memory.handle();
    buffer_.device_interface = memory.target().interface();
}

}  // namespace hattn
