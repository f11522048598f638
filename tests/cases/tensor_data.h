// A strided tensor and the memory under it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "hattn/hattn.h"

namespace hattn::cases {

using Extents = std::array<int64_t, 4>;

// Bytes at a 64-byte aligned address, 0 at first. What is not touched takes no memory.
class Storage {
public:
    explicit Storage(size_t bytes);

    std::byte *data() {
        return data_;
    }
    const std::byte *data() const {
        return data_;
    }
    size_t size() const {
        return size_;
    }

private:
    struct Free {
        void operator()(std::byte *memory) const {
            std::free(memory);
        }
    };

    std::unique_ptr<std::byte, Free> memory_;
    std::byte *data_;
    size_t size_;
};

// How a dense array is stretched: gaps in elements after every row, head and sequence; elements before the first one.
struct Gaps {
    int64_t after_row = 0;
    int64_t after_sequence = 0;
    int64_t after_head = 0;
    int64_t before = 0;
};

struct TensorData {
    std::shared_ptr<Storage> storage;  // null: the tensor is not given
    hattn_tensor view = HATTN_TENSOR_INIT;

    bool given() const {
        return storage != nullptr;
    }
    float *floats() const {
        return static_cast<float *>(view.data);
    }
};

size_t element_size(hattn_dtype dtype);
int64_t element_count(const hattn_tensor &tensor);
int64_t element_offset(const hattn_tensor &tensor, int64_t i0, int64_t i1, int64_t i2, int64_t i3);

template<typename T>
T &element(const hattn_tensor &tensor, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    return static_cast<T *>(tensor.data)[element_offset(tensor, i0, i1, i2, i3)];
}

// order[0] is the outermost dimension in memory and order[3] the innermost, which has stride 1. The gap after dimension
// n is added to the size of everything inside it.
TensorData make_tensor(hattn_dtype dtype, const Extents &extents, const std::array<int, 4> &order = {0, 1, 2, 3},
                       const Gaps &gaps = {});

// Dense, two elements to a byte: strides are even. The innermost dimension is the last one.
TensorData make_int4_tensor(const Extents &extents, const std::array<int, 4> &order = {0, 1, 2, 3});

// Every byte of the storage, gaps included.
void fill_bytes(TensorData &tensor, unsigned char value);
// Whether every byte that no element of the tensor covers still holds `value`.
bool gaps_hold(const TensorData &tensor, unsigned char value);
// Whether every byte holds `value`.
bool all_bytes_hold(const TensorData &tensor, unsigned char value);

// The elements in logical order.
std::vector<float> dense_floats(const hattn_tensor &tensor);

template<typename Visit>
void for_each_index(const Extents &extents, Visit visit) {
    for (int64_t i0 = 0; i0 < extents[0]; ++i0) {
        for (int64_t i1 = 0; i1 < extents[1]; ++i1) {
            for (int64_t i2 = 0; i2 < extents[2]; ++i2) {
                for (int64_t i3 = 0; i3 < extents[3]; ++i3) {
                    visit(i0, i1, i2, i3);
                }
            }
        }
    }
}

inline Extents extents_of(const hattn_tensor &tensor) {
    return {tensor.extent[0], tensor.extent[1], tensor.extent[2], tensor.extent[3]};
}

}  // namespace hattn::cases
