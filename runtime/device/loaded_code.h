// What OpenCL C of our kernels leaves open until it is loaded: types of tensors, and functions. Shared with the
// generators, which write calls of these.
#pragma once

#include <string>

#include "hattn/hattn.h"

namespace hattn {

// Types of the tensors of a launch. Kernels read and write no others.
struct TensorTypes {
    hattn_dtype query = HATTN_FLOAT32, key = HATTN_FLOAT32, value = HATTN_FLOAT32, output = HATTN_FLOAT32;

    auto operator<=>(const TensorTypes &) const = default;
};

namespace loaded_code {

inline constexpr char kQueryType[] = "hattn_query_type", kKeyType[] = "hattn_key_type",
                      kValueType[] = "hattn_value_type", kOutputType[] = "hattn_output_type",
                      kFloat16Value[] = "hattn_float16_value", kFloat16Bits[] = "hattn_float16_bits";

// To be put before the text of a kernel.
inline std::string definitions(const TensorTypes &types) {
    std::string text;
    const auto define = [&](const char *name, hattn_dtype type) {
        text += std::string("#define ") + name + "() " + std::to_string(type) + "\n";
    };
    define(kQueryType, types.query);
    define(kKeyType, types.key);
    define(kValueType, types.value);
    define(kOutputType, types.output);
    // Every device has these conversions, if no arithmetic on half (OpenCL C 1.2 specification, 6.12.7).
    text += std::string("float ") + kFloat16Value + "(ushort bits) { return vload_half(0, (const half *)&bits); }\n";
    text += std::string("ushort ") + kFloat16Bits +
            "(float value) { ushort bits; vstore_half_rte(value, 0, (half *)&bits); return bits; }\n";
    // Halide 21.0.0 calls it so, and defines nothing.
    text += "#define halide_popcount popcount\n";
    return text;
}

}  // namespace loaded_code

}  // namespace hattn
