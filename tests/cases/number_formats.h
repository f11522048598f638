// Numbers of 16 bits, by arithmetic in double precision: an oracle for the kernels' conversions.
#pragma once

#include <cstdint>

#include "hattn/hattn.h"

namespace hattn::cases {

// HATTN_FLOAT16 or HATTN_BFLOAT16, to nearest even. What is too large becomes infinite, a NaN stays one.
uint16_t encode(hattn_dtype type, double value);
double decode(hattn_dtype type, uint16_t bits);

// Largest error of encode() relative to the value, and absolute below the normal numbers; 0 for float32.
double roundoff(hattn_dtype type);
double smallest_step(hattn_dtype type);

// The largest finite number.
double largest(hattn_dtype type);

}  // namespace hattn::cases
