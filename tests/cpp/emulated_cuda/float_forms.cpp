// 32-bit numbers. Approximations of the hardware (.approx) are computed exactly to half a unit in the last place or so;
// .ftz takes and gives zeros for subnormal numbers.
#include <cmath>
#include <limits>

#include "lane_map.h"

namespace hattn::emulated_cuda {

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Of a number and NaN the number, and -0 is less than +0.
float smaller(float a, float b) {
    return a != a ? b : b != b ? a : a == b ? (std::signbit(a) ? a : b) : a < b ? a : b;
}
float larger(float a, float b) {
    return a != a ? b : b != b ? a : a == b ? (std::signbit(a) ? b : a) : a > b ? a : b;
}
float smaller_or_nan(float a, float b) {
    return a != a || b != b ? kNan : smaller(a, b);
}
float larger_or_nan(float a, float b) {
    return a != a || b != b ? kNan : larger(a, b);
}

float flush(float a) {
    return std::fpclassify(a) == FP_SUBNORMAL ? std::copysign(0.0f, a) : a;
}

void add_arithmetic(Forms &forms) {
    for (const char *rounding : {"", ".rn"}) {
        const std::string type = std::string(rounding) + ".f32";
        forms["add" + type] = lane_map<[](float a, float b) -> float { return a + b; }>();
        forms["sub" + type] = lane_map<[](float a, float b) -> float { return a - b; }>();
        forms["mul" + type] = lane_map<[](float a, float b) -> float { return a * b; }>();
    }
    forms["fma.rn.f32"] = lane_map<[](float a, float b, float c) -> float { return std::fma(a, b, c); }>();
    forms["div.rn.f32"] = lane_map<[](float a, float b) -> float { return a / b; }>();
    forms["div.full.f32"] = forms.at("div.rn.f32");
    forms["div.approx.f32"] = forms.at("div.rn.f32");
    forms["rcp.rn.f32"] = lane_map<[](float a) -> float { return 1.0f / a; }>();
    forms["rcp.approx.ftz.f32"] = lane_map<[](float a) -> float { return flush(1.0f / flush(a)); }>();
    forms["sqrt.rn.f32"] = lane_map<[](float a) -> float { return std::sqrt(a); }>();
    forms["rsqrt.approx.f32"] = lane_map<[](float a) -> float { return 1.0f / std::sqrt(a); }>();
    forms["ex2.approx.f32"] = lane_map<[](float a) -> float { return std::exp2(a); }>();
    forms["ex2.approx.ftz.f32"] = lane_map<[](float a) -> float { return flush(std::exp2(flush(a))); }>();
    forms["lg2.approx.f32"] = lane_map<[](float a) -> float { return std::log2(a); }>();
    forms["lg2.approx.ftz.f32"] = lane_map<[](float a) -> float { return std::log2(flush(a)); }>();
    forms["neg.f32"] = lane_map<[](float a) -> float { return -a; }>();
    forms["abs.f32"] = lane_map<[](float a) -> float { return std::fabs(a); }>();
    forms["min.f32"] = lane_map<smaller>();
    forms["max.f32"] = lane_map<larger>();
    forms["min.NaN.f32"] = lane_map<smaller_or_nan>();
    forms["max.NaN.f32"] = lane_map<larger_or_nan>();
    forms["mov.f32"] = lane_map<[](float a) -> float { return a; }>();
    forms["selp.f32"] = lane_map<[](float a, float b, bool which) -> float { return which ? a : b; }>();
}

// Those that end in u also hold where an operand is NaN.
void add_comparisons(Forms &forms) {
    forms["setp.eq.f32"] = lane_map<[](float a, float b) -> bool { return a == b; }>();
    forms["setp.ne.f32"] = lane_map<[](float a, float b) -> bool { return a < b || b < a; }>();
    forms["setp.lt.f32"] = lane_map<[](float a, float b) -> bool { return a < b; }>();
    forms["setp.le.f32"] = lane_map<[](float a, float b) -> bool { return a <= b; }>();
    forms["setp.gt.f32"] = lane_map<[](float a, float b) -> bool { return b < a; }>();
    forms["setp.ge.f32"] = lane_map<[](float a, float b) -> bool { return a >= b; }>();
    forms["setp.equ.f32"] = lane_map<[](float a, float b) -> bool { return !(a < b || a > b); }>();
    forms["setp.neu.f32"] = lane_map<[](float a, float b) -> bool { return !(a == b); }>();
    forms["setp.ltu.f32"] = lane_map<[](float a, float b) -> bool { return !(a >= b); }>();
    forms["setp.leu.f32"] = lane_map<[](float a, float b) -> bool { return !(a > b); }>();
    forms["setp.gtu.f32"] = lane_map<[](float a, float b) -> bool { return !(a <= b); }>();
    forms["setp.geu.f32"] = lane_map<[](float a, float b) -> bool { return !(a < b); }>();
    forms["setp.num.f32"] = lane_map<[](float a, float b) -> bool { return a == a && b == b; }>();
    forms["setp.nan.f32"] = lane_map<[](float a, float b) -> bool { return a != a || b != b; }>();
}

}  // namespace

void add_float_forms(Forms &forms) {
    add_arithmetic(forms);
    add_comparisons(forms);
}

}  // namespace hattn::emulated_cuda
