#include "number_formats.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hattn::cases {

namespace {

struct Format {
    int mantissa;  // bits behind the point
    int bias;      // of the exponent, whose smallest value for normal numbers is 1 - bias
};

Format format_of(hattn_dtype type) {
    switch (type) {
    case HATTN_FLOAT16:
        return {10, 15};
    case HATTN_BFLOAT16:
        return {7, 127};
    default:
        return {23, 127};
    }
}

uint16_t infinity_of(const Format &format) {
    return static_cast<uint16_t>((2 * format.bias + 1) << format.mantissa);
}

}  // namespace

uint16_t encode(hattn_dtype type, double value) {
    const Format format = format_of(type);
    const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
    const uint16_t infinity = infinity_of(format);
    if (std::isnan(value)) {
        return static_cast<uint16_t>(infinity + (1 << (format.mantissa - 1)));
    }
    if (value == 0.0 || std::isinf(value)) {
        return static_cast<uint16_t>(sign | (value == 0.0 ? 0 : infinity));
    }
    const int exponent = std::max(std::ilogb(value), 1 - format.bias);
    if (exponent > format.bias) {
        return static_cast<uint16_t>(sign | infinity);
    }
    // In units of the last place. The leading bit of a normal number carries into the exponent, as rounding up may.
    const double units = std::nearbyint(std::ldexp(std::fabs(value), format.mantissa - exponent));
    const int bits = ((exponent + format.bias - 1) << format.mantissa) + static_cast<int>(units);
    return static_cast<uint16_t>(sign | std::min<int>(bits, infinity));
}

double decode(hattn_dtype type, uint16_t bits) {
    const Format format = format_of(type);
    const int exponent = (bits & 0x7fff) >> format.mantissa;
    const int fraction = bits & ((1 << format.mantissa) - 1);
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == 2 * format.bias + 1) {
        return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
    }
    const int leading = exponent > 0 ? 1 << format.mantissa : 0;
    return sign * std::ldexp(leading + fraction, std::max(exponent, 1) - format.bias - format.mantissa);
}

double roundoff(hattn_dtype type) {
    return type == HATTN_FLOAT32 ? 0.0 : std::ldexp(1.0, -format_of(type).mantissa - 1);
}

double smallest_step(hattn_dtype type) {
    const Format format = format_of(type);
    return type == HATTN_FLOAT32 ? 0.0 : std::ldexp(1.0, 1 - format.bias - format.mantissa);
}

double largest(hattn_dtype type) {
    const Format format = format_of(type);
    return std::ldexp(2.0 - std::ldexp(1.0, -format.mantissa), format.bias);
}

}  // namespace hattn::cases
