// Checks on tensors, and views of them.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string>

#include "hattn/hattn.h"

namespace hattn {

// Names of the four dimensions, for messages.
struct DimensionNames {
    const char *name[4];
};
inline constexpr DimensionNames kQueryDimensions = {{"batch", "query heads", "query length", "head dimension"}};
inline constexpr DimensionNames kKeyDimensions = {{"batch", "kv heads", "kv length", "head dimension"}};
inline constexpr DimensionNames kPageDimensions = {{"pages", "kv heads", "page size", "head dimension"}};
inline constexpr DimensionNames kScoreDimensions = {{"batch", "query heads", "query length", "kv length"}};

const char *device_name(hattn_device device);  // "cpu", "opencl", "cuda"
// Where a tensor is, as a part of a message: "cpu", "cuda:0".
struct NamedPlace {
    const hattn_tensor &tensor;
};
std::ostream &operator<<(std::ostream &text, NamedPlace named);

// struct_size, dtype, device (the host or `device`), non-negative extents, strides that keep every address within 64
// bits, and data unless empty.
void check_tensor(const hattn_tensor &tensor, const char *name, hattn_dtype dtype, hattn_device device = HATTN_CPU);

// A type that keys and values may have; one that queries and outputs may have.
void check_storage_dtype(hattn_dtype dtype, const char *name);
void check_float_dtype(hattn_dtype dtype, const char *name);

// Elements that a tensor on a device may span, as its kernels count them; where these are smaller than bytes, bytes.
inline constexpr int64_t kMaxDeviceElements = std::numeric_limits<int32_t>::max();
// Kernels count up to kMaxExtent.
void check_tensor_extents(const hattn_tensor &tensor, const char *name);
void check_tensor_extent(const hattn_tensor &tensor, const char *name, const DimensionNames &names, int dimension,
                         int64_t expected, const char *expected_name);
void check_unit_stride(const hattn_tensor &tensor, const char *name);
// Kernels count elements from row to row in 32 bits.
inline constexpr int64_t kMaxRowStride = int64_t{1} << 23;
void check_stride_limit(const hattn_tensor &tensor, const char *name, int dimension, int64_t limit);
// Both on the host, or both on one device.
void check_same_place(const hattn_tensor &tensor, const char *name, const hattn_tensor &other, const char *other_name);
// A queue, which may be null, is for tensors of a device.
void check_queue_of(const hattn_tensor &tensor, const hattn_queue *queue, const char *name);

// No two elements of an output share memory.
void check_distinct_elements(const hattn_tensor &tensor, const char *name);

// The bytes a tensor spans, [begin, end); empty if it has no elements. Addresses, or offsets in memory that has none.
struct ByteRange {
    uintptr_t begin = 0, end = 0;
    const void *memory = nullptr;  // a cl_mem
};
ByteRange byte_range(const hattn_tensor &tensor);
bool overlaps(const ByteRange &a, const ByteRange &b);
// An output, and what it may not overlap.
void check_apart(const hattn_tensor &output, const char *name, const hattn_tensor &other, const char *other_name);

bool is_quantized(hattn_dtype dtype);
int64_t dtype_bits(hattn_dtype dtype);
int64_t storage_bytes(hattn_dtype dtype, int64_t elements);  // rounded up
std::string dtype_name(hattn_dtype dtype);                   // "float32"; a number that is none is named as such
// The same as a part of a message, which is written if there is one.
struct NamedDtype {
    hattn_dtype dtype;
};
std::ostream &operator<<(std::ostream &text, NamedDtype named);
bool is_empty(const hattn_tensor &tensor);

// Strides of extents of one are the caller's to ignore.
inline int64_t used_stride(const hattn_tensor &tensor, int dimension) {
    return tensor.extent[dimension] > 1 ? tensor.stride[dimension] : 0;
}

// The byte an element starts in.
void *address(const hattn_tensor &tensor, int64_t b, int64_t h, int64_t s);

// Pointer to an element of a type of whole bytes, indices in [B, H, S, D] order; broadcast extents are the caller's to
// map.
template<typename T>
T *element(const hattn_tensor &tensor, int64_t b, int64_t h, int64_t s) {
    return static_cast<T *>(tensor.data) + b * tensor.stride[0] + h * tensor.stride[1] + s * tensor.stride[2];
}

}  // namespace hattn
