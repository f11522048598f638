#include "dtypes.h"

#include <iterator>

namespace hattn_python {
namespace {

// DLPack's types 7 to 17, which nanobind has no names for.
constexpr int kFirstSmallFloat = 7;
constexpr const char *kSmallFloats[] = {"float8_e3m4",     "float8_e4m3",   "float8_e4m3b11fnuz", "float8_e4m3fn",
                                        "float8_e4m3fnuz", "float8_e5m2",   "float8_e5m2fnuz",    "float8_e8m0fnu",
                                        "float6_e2m3fn",   "float6_e3m2fn", "float4_e2m1fn"};

bool is_small_float(int code) {
    return code >= kFirstSmallFloat && code < kFirstSmallFloat + static_cast<int>(std::size(kSmallFloats));
}

std::string element_text(nb::dlpack::dtype type) {
    using enum nb::dlpack::dtype_code;
    const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
    const std::string bits = std::to_string(type.bits);
    switch (code) {
    case Int:
        return "int" + bits;
    case UInt:
        return "uint" + bits;
    case Float:
        return "float" + bits;
    case Bfloat:
        return "bfloat" + bits;
    case Complex:
        return "complex" + bits;
    case Bool:
        return "bool";
    default:
        return is_small_float(type.code) ? kSmallFloats[type.code - kFirstSmallFloat]
                                         : "DLPack type " + std::to_string(type.code) + " of " + bits + " bits";
    }
}

}  // namespace

std::string dtype_text(nb::dlpack::dtype type) {
    return element_text(type) + (type.lanes == 1 ? "" : "x" + std::to_string(type.lanes));
}

std::optional<hattn_dtype> library_dtype(nb::dlpack::dtype type) {
    using enum nb::dlpack::dtype_code;
    if (type.lanes != 1)
        return std::nullopt;
    switch (static_cast<nb::dlpack::dtype_code>(type.code)) {
    case Float:
        if (type.bits == 32)
            return HATTN_FLOAT32;
        if (type.bits == 16)
            return HATTN_FLOAT16;
        return std::nullopt;
    case Bfloat:
        return type.bits == 16 ? std::optional(HATTN_BFLOAT16) : std::nullopt;
    case Bool:
        return type.bits == 8 ? std::optional(HATTN_BOOL) : std::nullopt;
    case Int:
        if (type.bits == 8)
            return HATTN_INT8;
        if (type.bits == 32)
            return HATTN_INT32;
        return std::nullopt;
    default:
        return std::nullopt;
    }
}

bool is_foreign(nb::handle dtype) {
    try {
        nb::module_::import_("numpy").attr("empty")(0, dtype).attr("__dlpack__")();
        return false;
    } catch (nb::python_error &) {
        return true;
    }
}

}  // namespace hattn_python
