#include "tensor.h"

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <utility>

#include "checked.h"
#include "problem.h"
#include "structs.h"

namespace hattn {

namespace {

// So that no sum of an offset and a span leaves 64 bits.
constexpr uint64_t kMaxByteOffset = uint64_t{1} << 62;

// Of the smallest number too, which std::llabs has none for.
uint64_t magnitude(int64_t number) {
    return number < 0 ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
}

}  // namespace

const char *device_name(hattn_device device) {
    return device == HATTN_OPENCL ? "opencl" : device == HATTN_CUDA ? "cuda" : "cpu";
}

std::ostream &operator<<(std::ostream &text, NamedPlace named) {
    text << device_name(named.tensor.device);
    return named.tensor.device == HATTN_CPU ? text : text << ':' << named.tensor.device_id;
}

bool is_quantized(hattn_dtype dtype) {
    return dtype == HATTN_INT8 || dtype == HATTN_INT4;
}

int64_t dtype_bits(hattn_dtype dtype) {
    switch (dtype) {
    case HATTN_FLOAT32:
    case HATTN_INT32:
        return 32;
    case HATTN_FLOAT16:
    case HATTN_BFLOAT16:
        return 16;
    case HATTN_INT4:
        return 4;
    default:
        return 8;
    }
}

int64_t storage_bytes(hattn_dtype dtype, int64_t elements) {
    return ceil_div(elements * dtype_bits(dtype), 8);
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

std::ostream &operator<<(std::ostream &text, NamedDtype named) {
    return text << dtype_name(named.dtype);
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
    // Both ends may be given to storage_bytes(), which rounds up.
    const int64_t bits = dtype_bits(tensor.dtype), below = checked_multiply(span.lowest, -1, name);
    for (const int64_t elements : {below, checked_add(span.highest, 1, name)}) {
        checked_add(checked_multiply(elements, bits, name), 7, name);
    }
    return span;
}

}  // namespace

void check_tensor(const hattn_tensor &tensor, const char *name, hattn_dtype dtype, hattn_device device) {
    read_struct(&tensor, name);
    require(tensor.dtype == dtype, HATTN_INVALID_ARGUMENT, name, ": dtype is ", NamedDtype{tensor.dtype},
            ", but must be ", NamedDtype{dtype});
    require(tensor.device >= HATTN_CPU && tensor.device <= HATTN_CUDA, HATTN_INVALID_ARGUMENT, name, ": device is ",
            static_cast<int>(tensor.device), ", which is no hattn_device");
    require(tensor.device == HATTN_CPU || tensor.device == device, HATTN_NOT_SUPPORTED, name, ": device is ",
            static_cast<int>(tensor.device), " (", device_name(tensor.device), "), but must be ",
            device == HATTN_CPU ? "" : "that of the plan, ", static_cast<int>(device), " (", device_name(device), ")",
            device == HATTN_CPU ? "" : ", or 0 (cpu)");
    require(tensor.byte_offset == 0 || tensor.device == HATTN_OPENCL, HATTN_INVALID_ARGUMENT, name, ": byte_offset is ",
            tensor.byte_offset, ", but must be 0 unless device is ", static_cast<int>(HATTN_OPENCL), " (opencl)");
    for (int d = 0; d < 4; ++d) {
        require(tensor.extent[d] >= 0, HATTN_INVALID_ARGUMENT, name, ": extent[", d, "] is ", tensor.extent[d],
                ", but must be at least 0");
    }
    if (!is_empty(tensor)) {
        require(tensor.data, HATTN_INVALID_ARGUMENT, name, ": data is null");
        const int64_t bytes = storage_bytes(dtype, 1);
        require(reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(bytes) == 0, HATTN_INVALID_ARGUMENT,
                name, ": data is ", tensor.data, ", but must be aligned to ", bytes, " bytes");
        require(tensor.byte_offset % static_cast<uint64_t>(bytes) == 0 && tensor.byte_offset <= kMaxByteOffset,
                HATTN_INVALID_ARGUMENT, name, ": byte_offset is ", tensor.byte_offset, ", but must be a multiple of ",
                bytes, " up to ", kMaxByteOffset);
        for (int d = 0; d < 3 && dtype == HATTN_INT4; ++d) {
            require(tensor.extent[d] == 1 || tensor.stride[d] % 2 == 0, HATTN_INVALID_ARGUMENT, name, ": stride[", d,
                    "] is ", tensor.stride[d], ", but must be even for int4, two to a byte");
        }
        const int64_t below = storage_bytes(dtype, -element_span(tensor, name).lowest);
        require(tensor.device != HATTN_OPENCL || below <= static_cast<int64_t>(tensor.byte_offset),
                HATTN_INVALID_ARGUMENT, name, ": byte_offset is ", tensor.byte_offset, ", but strides reach ", below,
                " bytes below it");
    }
}

void check_storage_dtype(hattn_dtype dtype, const char *name) {
    require(dtype >= HATTN_FLOAT32 && dtype <= HATTN_INT4, HATTN_INVALID_ARGUMENT, name, ": is ", NamedDtype{dtype},
            ", but must be float32, float16, bfloat16, int8 or int4");
}

void check_float_dtype(hattn_dtype dtype, const char *name) {
    require(dtype >= HATTN_FLOAT32 && dtype <= HATTN_BFLOAT16, HATTN_INVALID_ARGUMENT, name, ": is ", NamedDtype{dtype},
            ", but must be float32, float16 or bfloat16");
}

void check_tensor_extents(const hattn_tensor &tensor, const char *name) {
    for (int d = 0; d < 4; ++d) {
        require(tensor.extent[d] <= kMaxExtent, HATTN_OVERFLOW, name, ": extent[", d, "] is ", tensor.extent[d],
                ", but the kernels count up to ", kMaxExtent);
    }
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

void check_stride_limit(const hattn_tensor &tensor, const char *name, int dimension, int64_t limit) {
    require(magnitude(used_stride(tensor, dimension)) <= static_cast<uint64_t>(limit), HATTN_NOT_SUPPORTED, name,
            ": stride[", dimension, "] is ", tensor.stride[dimension], ", but at most ", limit, " is supported");
}

void check_same_place(const hattn_tensor &tensor, const char *name, const hattn_tensor &other, const char *other_name) {
    const bool same_id = tensor.device == HATTN_CPU || tensor.device_id == other.device_id;
    require(tensor.device == other.device && same_id, HATTN_INVALID_ARGUMENT, name, ": is on ", NamedPlace{tensor},
            ", but ", other_name, " is on ", NamedPlace{other});
}

void check_queue_of(const hattn_tensor &tensor, const hattn_queue *queue, const char *name) {
    require(!queue || tensor.device != HATTN_CPU, HATTN_INVALID_ARGUMENT, "queue: is given, but ", name, " is on ",
            NamedPlace{tensor});
}

void check_distinct_elements(const hattn_tensor &tensor, const char *name) {
    if (is_empty(tensor)) {
        return;
    }
    int order[4] = {0, 1, 2, 3};
    const auto size = [&tensor](int d) { return magnitude(used_stride(tensor, d)); };
    std::sort(order, order + 4, [&](int a, int b) {  // of strides alike it is not the last one that is wrong
        return std::pair(size(a), -a) < std::pair(size(b), -b);
    });
    uint64_t span = 1;  // elements spanned by the dimensions before
    for (int d : order) {
        if (tensor.extent[d] <= 1) {
            continue;
        }
        require(size(d) >= span, HATTN_INVALID_ARGUMENT, name, ": stride[", d, "] is ", tensor.stride[d],
                ", but the elements below span ", span, ", so that elements would overlap");
        span += static_cast<uint64_t>(tensor.extent[d] - 1) * size(d);
    }
}

ByteRange byte_range(const hattn_tensor &tensor) {
    if (!tensor.data || is_empty(tensor)) {
        return {};
    }
    const ElementSpan span = element_span(tensor, "tensor");
    const int64_t first = span.lowest * dtype_bits(tensor.dtype) / 8;  // rows start at bytes
    const int64_t end = storage_bytes(tensor.dtype, span.highest + 1);
    const bool addressed = tensor.device != HATTN_OPENCL;
    const uintptr_t base = addressed ? reinterpret_cast<uintptr_t>(tensor.data) : tensor.byte_offset;
    return {base + static_cast<uintptr_t>(first), base + static_cast<uintptr_t>(end),
            addressed ? nullptr : tensor.data};
}

void *address(const hattn_tensor &tensor, int64_t b, int64_t h, int64_t s) {
    const int64_t elements = b * tensor.stride[0] + h * tensor.stride[1] + s * tensor.stride[2];
    return static_cast<char *>(tensor.data) + elements * dtype_bits(tensor.dtype) / 8;
}

bool overlaps(const ByteRange &a, const ByteRange &b) {
    return a.memory == b.memory && a.begin < b.end && b.begin < a.end;
}

void check_apart(const hattn_tensor &output, const char *name, const hattn_tensor &other, const char *other_name) {
    require(!overlaps(byte_range(output), byte_range(other)), HATTN_INVALID_ARGUMENT, name, ": its memory, from ",
            output.data, ", overlaps that of ", other_name, ", from ", other.data);
}

}  // namespace hattn
