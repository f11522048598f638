#include "tensor_data.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace hattn::cases {

namespace {
constexpr size_t kAlignment = 64;
}

Storage::Storage(size_t bytes) : memory_(static_cast<std::byte *>(std::calloc(bytes + kAlignment, 1))), size_(bytes) {
    if (!memory_) {
        throw std::bad_alloc();
    }
    auto address = reinterpret_cast<uintptr_t>(memory_.get());
    data_ = memory_.get() + (kAlignment - address % kAlignment) % kAlignment;
}

size_t element_size(hattn_dtype dtype) {
    switch (dtype) {
    case HATTN_BOOL:
    case HATTN_INT8:
        return 1;
    case HATTN_FLOAT16:
    case HATTN_BFLOAT16:
        return 2;
    default:
        return 4;
    }
}

int64_t element_count(const hattn_tensor &tensor) {
    return tensor.extent[0] * tensor.extent[1] * tensor.extent[2] * tensor.extent[3];
}

int64_t element_offset(const hattn_tensor &tensor, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    return i0 * tensor.stride[0] + i1 * tensor.stride[1] + i2 * tensor.stride[2] + i3 * tensor.stride[3];
}

TensorData make_tensor(hattn_dtype dtype, const Extents &extents, const std::array<int, 4> &order, const Gaps &gaps) {
    const int64_t gap_after[4] = {0, gaps.after_head, gaps.after_sequence, gaps.after_row};
    TensorData tensor;
    tensor.view.dtype = dtype;
    int64_t size = 1;
    for (int level = 3; level >= 0; --level) {
        int dim = order[static_cast<size_t>(level)];
        tensor.view.stride[dim] = size;
        tensor.view.extent[dim] = extents[static_cast<size_t>(dim)];
        size = size * extents[static_cast<size_t>(dim)] + gap_after[level];
    }
    tensor.storage = std::make_shared<Storage>(static_cast<size_t>(size + gaps.before) * element_size(dtype));
    tensor.view.data = tensor.storage->data() + static_cast<size_t>(gaps.before) * element_size(dtype);
    return tensor;
}

TensorData make_int4_tensor(const Extents &extents, const std::array<int, 4> &order) {
    TensorData packed = make_tensor(HATTN_INT8, {extents[0], extents[1], extents[2], (extents[3] + 1) / 2}, order);
    packed.view.dtype = HATTN_INT4;
    packed.view.extent[3] = extents[3];
    for (int d = 0; d < 3; ++d) {
        packed.view.stride[d] *= 2;
    }
    return packed;
}

void fill_bytes(TensorData &tensor, unsigned char value) {
    if (tensor.storage->size() > 0) {
        std::memset(tensor.storage->data(), value, tensor.storage->size());
    }
}

bool gaps_hold(const TensorData &tensor, unsigned char value) {
    std::vector<bool> covered(tensor.storage->size());
    size_t size = element_size(tensor.view.dtype);
    auto base = static_cast<size_t>(static_cast<const std::byte *>(tensor.view.data) - tensor.storage->data());
    for_each_index(extents_of(tensor.view), [&](int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
        size_t first = base + static_cast<size_t>(element_offset(tensor.view, i0, i1, i2, i3)) * size;
        std::fill_n(covered.begin() + static_cast<std::ptrdiff_t>(first), size, true);
    });
    for (size_t i = 0; i < covered.size(); ++i) {
        if (!covered[i] && tensor.storage->data()[i] != std::byte{value}) {
            return false;
        }
    }
    return true;
}

bool all_bytes_hold(const TensorData &tensor, unsigned char value) {
    return std::all_of(tensor.storage->data(), tensor.storage->data() + tensor.storage->size(),
                       [value](std::byte byte) { return byte == std::byte{value}; });
}

std::vector<float> dense_floats(const hattn_tensor &tensor) {
    std::vector<float> values;
    values.reserve(static_cast<size_t>(element_count(tensor)));
    for_each_index(extents_of(tensor), [&](int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
        values.push_back(element<float>(tensor, i0, i1, i2, i3));
    });
    return values;
}

}  // namespace hattn::cases
