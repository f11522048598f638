#include "tensor.h"

#include <algorithm>
#include <cstdlib>

#include "checked.h"
#include "problem.h"
#include "structs.h"

namespace hattn {

int64_t dtype_bytes(hattn_dtype dtype) {
    switch (dtype) {
    case HATTN_FLOAT32:
    case HATTN_INT32:
        return 4;
    case HATTN_FLOAT16:
    case HATTN_BFLOAT16:
        return 2;
    default:
        return 1;
    }
}

std::string dtype_name(hattn_dtype dtype) {
    switch (dtype) {
    case HATTN_FLOAT32:
        return "float32";
    case HATTN_FLOAT16:
        return "float16";
    case HATTN_BFLOAT16:
        return "bfloat16";
    case HATTN_INT8:
        return "int8";
    case HATTN_INT4:
        return "int4";
    case HATTN_BOOL:
        return "bool";
    case HATTN_INT32:
        return "int32";
    }
    return std::to_string(static_cast<int>(dtype)) + ", which is no hattn_dtype";
}

bool is_empty(const hattn_tensor &tensor) {
    return std::any_of(tensor.extent, tensor.extent + 4, [](int64_t extent) { return extent == 0; });
}

namespace {

// The span of a tensor's elements, relative to its data pointer, in elements: [lowest, highest].
struct ElementSpan {
    int64_t lowest = 0, highest = 0;
};

ElementSpan element_span(const hattn_tensor &tensor, const char *name) {
    ElementSpan span;
    for (int d = 0; d < 4; ++d) {
        if (tensor.extent[d] > 1) {
            const int64_t reach = checked_multiply(tensor.extent[d] - 1, tensor.stride[d], name);
            int64_t &end = reach < 0 ? span.lowest : span.highest;
            end = checked_add(end, reach, name);
        }
    }
    const int64_t bytes = dtype_bytes(tensor.dtype);
    checked_multiply(span.lowest, bytes, name);
    checked_multiply(checked_add(span.highest, 1, name), bytes, name);
    return span;
}

}  // namespace

void check_tensor(const hattn_tensor &tensor, const char *name, hattn_dtype dtype) {
    read_struct(&tensor, name);
    require(tensor.dtype == dtype,
            tensor.dtype >= HATTN_FLOAT32 && tensor.dtype <= HATTN_INT32 && dtype == HATTN_FLOAT32 &&
                    (tensor.dtype == HATTN_FLOAT16 || tensor.dtype == HATTN_BFLOAT16)
                ? HATTN_NOT_SUPPORTED
                : HATTN_INVALID_ARGUMENT,
            name, ": dtype is ", dtype_name(tensor.dtype), ", but must be ", dtype_name(dtype));
    require(tensor.device >= HATTN_CPU && tensor.device <= HATTN_CUDA, HATTN_INVALID_ARGUMENT, name, ": device is ",
            static_cast<int>(tensor.device), ", which is no hattn_device");
    require(tensor.device == HATTN_CPU, HATTN_NOT_SUPPORTED, name, ": device is ", static_cast<int>(tensor.device),
            ", but only HATTN_CPU (", static_cast<int>(HATTN_CPU), ") is supported yet");
    for (int d = 0; d < 4; ++d) {
        require(tensor.extent[d] >= 0, HATTN_INVALID_ARGUMENT, name, ": extent[", d, "] is ", tensor.extent[d],
                ", but must be at least 0");
    }
    if (!is_empty(tensor)) {
        require(tensor.data, HATTN_INVALID_ARGUMENT, name, ": data is null");
        require(reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(dtype_bytes(dtype)) == 0,
                HATTN_INVALID_ARGUMENT, name, ": data is ", tensor.data, ", but must be aligned to ",
                dtype_bytes(dtype), " bytes");
        element_span(tensor, name);
    }
}

void check_storage_dtype(hattn_dtype dtype, const char *name) {
    const bool storage = dtype >= HATTN_FLOAT32 && dtype <= HATTN_INT4;
    require(storage, HATTN_INVALID_ARGUMENT, name, ": is ", dtype_name(dtype),
            ", but must be a floating-point type, int8 or int4");
    require(dtype == HATTN_FLOAT32, HATTN_NOT_SUPPORTED, name, ": is ", dtype_name(dtype),
            ", but only float32 is supported yet");
}

void check_tensor_extent(const hattn_tensor &tensor, const char *name, const DimensionNames &names, int dimension,
                         int64_t expected, const char *expected_name) {
    require(tensor.extent[dimension] == expected, HATTN_INVALID_ARGUMENT, name, ": extent[", dimension, "] (",
            names.name[dimension], ") is ", tensor.extent[dimension], ", but ", expected_name, " is ", expected);
}

void check_unit_stride(const hattn_tensor &tensor, const char *name) {
    require(tensor.stride[3] == 1 || tensor.extent[3] <= 1 || is_empty(tensor), HATTN_INVALID_ARGUMENT, name,
            ": stride[3] is ", tensor.stride[3], ", but must be 1");
}

void check_distinct_elements(const hattn_tensor &tensor, const char *name) {
    if (is_empty(tensor)) {
        return;
    }
    int order[4] = {0, 1, 2, 3};
    std::sort(order, order + 4,
              [&](int a, int b) { return std::llabs(tensor.stride[a]) < std::llabs(tensor.stride[b]); });
    int64_t span = 1;  // elements spanned by the dimensions before
    for (int d : order) {
        if (tensor.extent[d] <= 1) {
            continue;
        }
        const int64_t stride = std::llabs(tensor.stride[d]);
        require(stride >= span, HATTN_INVALID_ARGUMENT, name, ": stride[", d, "] is ", tensor.stride[d],
                ", but the elements below span ", span, ", so that elements would overlap");
        span += (tensor.extent[d] - 1) * stride;
    }
}

ByteRange byte_range(const hattn_tensor &tensor) {
    if (!tensor.data || is_empty(tensor)) {
        return {};
    }
    const ElementSpan span = element_span(tensor, "tensor");
    const auto base = reinterpret_cast<uintptr_t>(tensor.data);
    const int64_t bytes = dtype_bytes(tensor.dtype);
    return {base + static_cast<uintptr_t>(span.lowest * bytes),
            base + static_cast<uintptr_t>((span.highest + 1) * bytes)};
}

bool overlaps(const ByteRange &a, const ByteRange &b) {
    return a.begin < b.end && b.begin < a.end;
}

}  // namespace hattn
