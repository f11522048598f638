#include "number_formats.h"

namespace hattn::generators {

using namespace Halide;

Expr float16_value(Expr bits) {
    return cast<float>(reinterpret(Float(16), std::move(bits)));
}

Expr bfloat16_value(Expr bits) {
    return reinterpret<float>(cast<uint32_t>(std::move(bits)) << 16);
}

Expr int4_value(Expr byte, Expr odd) {
    Expr signed_byte = reinterpret<int8_t>(std::move(byte));
    return select(std::move(odd) == 0, signed_byte << 4, signed_byte) >> 4;
}

Expr float16_bits(Expr value) {
    return reinterpret<uint16_t>(cast(Float(16), std::move(value)));
}

// Half a unit of the last place is added, less one where the place is even. Integers carry it into the exponent, up to
// infinity. Of a NaN the quiet bit is set instead, lest its payload round away.
Expr bfloat16_bits(Expr value) {
    const auto constant = [](uint32_t number) { return Expr(number); };
    Expr bits = reinterpret<uint32_t>(std::move(value));
    Expr upper = bits >> 16;
    Expr rounded = (bits + constant(0x7fff) + (upper & constant(1))) >> 16;
    Expr is_nan = (bits & constant(0x7fffffff)) > constant(0x7f800000);
    return cast<uint16_t>(select(is_nan, upper | constant(0x40), rounded));
}

}  // namespace hattn::generators
