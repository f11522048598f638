// Numbers of 16 bits and fewer, as bits and as float32.
#pragma once

#include "Halide.h"

namespace hattn::generators {

// Exact, subnormals and infinities included.
Halide::Expr float16_value(Halide::Expr bits);   // uint16: IEEE 754 binary16
Halide::Expr bfloat16_value(Halide::Expr bits);  // uint16: the upper half of a float32
Halide::Expr int4_value(Halide::Expr byte, Halide::Expr odd);  // int8 of a uint8: its low half, or its high one

// The nearest number, ties to even; what is too large becomes infinite, a NaN stays one.
Halide::Expr float16_bits(Halide::Expr value);
Halide::Expr bfloat16_bits(Halide::Expr value);

}  // namespace hattn::generators
