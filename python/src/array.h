// Array arguments of the module: NumPy arrays and DLPack tensors seen as hattn_tensor, without copies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "dtypes.h"
#include "hattn/hattn.h"

namespace hattn_python {

namespace nb = nanobind;

// Order of the dimensions of q, k, v and out. Everything else is always in logical order.
enum class Layout { kBhsd, kBshd };

// An imported array. Keeps the producer's memory alive; copying shares it. Default: "not given" (null data).
class Array {
public:
    Array() = default;

    // object: anything with __dlpack__ or the buffer protocol. Throws TypeError, ValueError or NotImplementedError that
    // starts with `name`, which must outlive the array.
    static Array readable(nb::handle object, const char *name);
    // bits: the array is one of uint16 that holds bfloat16.
    static Array writable(nb::handle object, const char *name, bool bits = false);

    // Throws TypeError unless it is one of those allowed, as all that follows does.
    hattn_dtype dtype(const Dtypes &allowed) const;
    // [B, H, S, D], reordered from `layout`. Throws ValueError unless the rank is 4.
    hattn_tensor tensor(Layout layout, const Dtypes &allowed) const;
    // The same of keys or values, of which uint8 arrays hold two int4 a byte.
    hattn_tensor stored_tensor(Layout layout) const;
    // As the trailing dimensions of a rank-4 tensor: leading extents of 1, stride 0 where the extent is 1.
    // Throws ValueError if the rank is above 4.
    hattn_tensor broadcast_tensor(const Dtypes &allowed) const;
    // [B, H, S] as [B, H, S, 1], of float32. Throws ValueError unless the rank is 3.
    hattn_tensor row_tensor() const;

    size_t elements() const {
        return view_.size();
    }
    void *data() const {
        return const_cast<void *>(view_.data());
    }

    // The array as `count` float32 or int32 values, narrowed from any integer type. Throws TypeError or ValueError for
    // another rank, length (`of_what` says what it must equal), dtype or a value beyond int32.
    std::vector<float> floats(int64_t count, const char *of_what) const;
    std::vector<int32_t> integers(int64_t count, const char *of_what) const;
    // The same of any length.
    std::vector<int32_t> integers() const;

private:
    using View = nb::ndarray<nb::ro>;

    Array(View view, const char *name, bool is_bfloat16);
    hattn_tensor describe(hattn_dtype dtype) const;
    hattn_tensor arranged(Layout layout, hattn_dtype dtype) const;
    void require_vector() const;
    void require_count(int64_t count, const char *of_what) const;
    void require_rank(size_t rank, const char *dimensions) const;

    View view_;
    const char *name_ = "";
    bool is_bfloat16_ = false;  // a NumPy array of ml_dtypes.bfloat16, seen as uint16
};

// Throws ValueError for an array whose elements have no memory.
inline void check_memory(const char *name, nb::handle array) {
    Array::readable(array, name);
}

// numpy.empty() of float32, float16 or, for bfloat16, uint16.
nb::object empty_array(const std::vector<int64_t> &shape, hattn_dtype dtype);
inline nb::object empty_float32(const std::vector<int64_t> &shape) {
    return empty_array(shape, HATTN_FLOAT32);
}

[[noreturn]] void raise(PyObject *type, const std::string &message);

}  // namespace hattn_python
