// Of kernels whose products are of bytes with signs, see integer_bytes.h: stages beside those of in_integers.
#pragma once

#include "Halide.h"

namespace hattn::generators {

struct ByteValues {
    Halide::Func value_numbers;  // (side, lane, panel, quad, granule, c) int8, at positions
    Halide::Func value_halves;   // (side, lane, pair, panel, quad, granule, c) of two keys: numbers of 2 * pair + side
};

}  // namespace hattn::generators
