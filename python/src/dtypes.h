// Dtypes of array arguments: which there may be, and their names in messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "hattn/hattn.h"

namespace hattn_python {

namespace nb = nanobind;

// The dtypes that an argument may have, as bits 1 << hattn_dtype, and what messages call them.
struct Dtypes {
    uint32_t bits;
    const char *names;
};
inline constexpr Dtypes kFloats{1U << HATTN_FLOAT32 | 1U << HATTN_FLOAT16 | 1U << HATTN_BFLOAT16,
                                "float32, float16 or bfloat16"};
inline constexpr Dtypes kKept{kFloats.bits | 1U << HATTN_INT8,
                              "float32, float16, bfloat16, int8 or, with two int4 a byte, uint8"};
inline constexpr Dtypes kFloat32{1U << HATTN_FLOAT32, "float32"};
inline constexpr Dtypes kBool{1U << HATTN_BOOL, "bool"};
inline constexpr Dtypes kInt32{1U << HATTN_INT32, "int32"};

std::string dtype_text(nb::dlpack::dtype type);

// The library's name for a dtype, if it has one. Where it may be used is for Dtypes to say.
std::optional<hattn_dtype> library_dtype(nb::dlpack::dtype type);

// Whether NumPy exports no array of a dtype, not even an empty one: object, records, another byte order.
bool is_foreign(nb::handle dtype);

}  // namespace hattn_python
