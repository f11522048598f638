// Conversions between numbers, and registers made of parts of others.
#include <algorithm>
#include <cmath>
#include <limits>

#include "half_floats.h"
#include "lane_map.h"
#include "type_names.h"

namespace hattn::emulated_cuda {

namespace {

// NaN becomes 0, and what is out of range the nearest number that is not.
template<typename To, float (*round)(float)>
To to_integer(float a) {
    using Limits = std::numeric_limits<To>;
    constexpr auto kLowest = static_cast<double>(Limits::min()), kHighest = static_cast<double>(Limits::max());
    const double rounded = round(a);
    return rounded != rounded    ? To(0)
           : rounded <= kLowest  ? Limits::min()
           : rounded >= kHighest ? Limits::max()
                                 : static_cast<To>(rounded);
}

template<typename To>
void add_from_float(Forms &forms) {
    const std::string types = "." + type_name<To>() + ".f32";
    forms["cvt.rzi" + types] = lane_map<to_integer<To, std::trunc>>();
    forms["cvt.rni" + types] = lane_map<to_integer<To, std::nearbyint>>();
    forms["cvt.rmi" + types] = lane_map<to_integer<To, std::floor>>();
    forms["cvt.rpi" + types] = lane_map<to_integer<To, std::ceil>>();
}

template<typename To, typename From>
void add_between_integers(Forms &forms) {
    forms["cvt." + type_name<To>() + "." + type_name<From>()] =
        lane_map<[](From a) -> To { return static_cast<To>(a); }>();
}

template<typename From>
void add_from(Forms &forms) {
    add_between_integers<uint8_t, From>(forms);
    add_between_integers<int8_t, From>(forms);
    add_between_integers<uint16_t, From>(forms);
    add_between_integers<int16_t, From>(forms);
    add_between_integers<uint32_t, From>(forms);
    add_between_integers<int32_t, From>(forms);
    add_between_integers<uint64_t, From>(forms);
    add_between_integers<int64_t, From>(forms);
    forms["cvt.rn.f32." + type_name<From>()] = lane_map<[](From a) -> float { return static_cast<float>(a); }>();
}

template<typename... From>
void add_integers(Forms &forms) {
    (add_from<From>(forms), ...);
    (add_from_float<From>(forms), ...);
}

void add_16_bit_floats(Forms &forms) {
    forms["cvt.f32.f16"] = lane_map<[](uint16_t a) -> float { return float16_value(a); }>();
    forms["cvt.f32.bf16"] = lane_map<[](uint16_t a) -> float { return bfloat16_value(a); }>();
    forms["cvt.rn.f16.f32"] = lane_map<[](float a) -> uint16_t { return float16_bits(a); }>();
    forms["cvt.rn.bf16.f32"] = lane_map<[](float a) -> uint16_t { return bfloat16_bits(a); }>();
    // The first operand goes to the upper half.
    forms["cvt.rn.f16x2.f32"] =
        lane_map<[](float a, float b) -> uint32_t { return uint32_t{float16_bits(a)} << 16 | float16_bits(b); }>();
    forms["cvt.rn.bf16x2.f32"] =
        lane_map<[](float a, float b) -> uint32_t { return uint32_t{bfloat16_bits(a)} << 16 | bfloat16_bits(b); }>();
}

}  // namespace

void add_conversion_forms(Forms &forms) {
    add_integers<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t>(forms);
    add_16_bit_floats(forms);
    forms["cvt.rmi.f32.f32"] = lane_map<[](float a) -> float { return std::floor(a); }>();
    forms["cvt.rpi.f32.f32"] = lane_map<[](float a) -> float { return std::ceil(a); }>();
    forms["cvt.rni.f32.f32"] = lane_map<[](float a) -> float { return std::nearbyint(a); }>();
    forms["cvt.rzi.f32.f32"] = lane_map<[](float a) -> float { return std::trunc(a); }>();
}

}  // namespace hattn::emulated_cuda
