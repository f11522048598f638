#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

namespace {

// 2^f of f in [-1/2, 1/2]: minimax relative to 2^f with the constant term held at 1, error 9.2e-8 before rounding.
Expr exp2_of_fraction(const Expr &f) {
    Expr p = 1.326472709e-03f;
    for (float coefficient : {9.671512682e-03f, 5.550733744e-02f, 2.402224208e-01f, 6.931469776e-01f, 1.0f}) {
        p = p * f + coefficient;
    }
    return p;
}

}  // namespace

// x = n + f with n an integer. Clamping at -127 makes the exponent field of 2^n zero, which reads as 0.0f.
Expr exp2_nonpositive(Expr x) {
    Expr clamped = max(std::move(x), -127.0f);
    // Truncation rounds towards zero, so half a unit is taken off first.
    Expr n = cast<int>(clamped - 0.5f);
    return exp2_of_fraction(clamped - cast<float>(n)) * reinterpret<float>((n + 127) << 23);
}

namespace {

// The same with fewer instructions. Beside a number in [2^23, 2^24) there are but integers: the sum has n + 127 in its
// lowest bits, all others of which leave the word when these become an exponent.
Expr exp2_by_sum(const Expr &clamped) {
    constexpr float kIntegersFrom = 12582912.0f;  // 3 * 2^22
    Expr sum = strict_float(clamped + (kIntegersFrom + 127.0f));
    Expr n = strict_float(sum - (kIntegersFrom + 127.0f));
    return exp2_of_fraction(strict_float(clamped - n)) * reinterpret<float>(reinterpret<int>(sum) << 23);
}

}  // namespace

Expr exp2_strict(Expr x) {
    return exp2_by_sum(max(std::move(x), -127.0f));
}

Expr exp2_or_nan(Expr x) {
    // Compared as numbers that may be NaNs, which max() is not: x86 then has an operand order to keep.
    return exp2_by_sum(strict_float(select(x < -127.0f, -127.0f, x)));
}

namespace {

Expr instruction_of_cuda(const char *name, std::vector<Expr> operands) {
    return Internal::Call::make(Float(32), name, std::move(operands), Internal::Call::PureExtern);
}

Expr reciprocal_of_cuda(Expr x) {
    return instruction_of_cuda("llvm.nvvm.rcp.approx.ftz.f", {std::move(x)});
}

}  // namespace

Expr exp2_of_cuda(Expr x) {
    return instruction_of_cuda("llvm.nvvm.ex2.approx.ftz.f", {std::move(x)});
}

Expr max_of_cuda(Expr a, Expr b) {
    return instruction_of_cuda("llvm.nvvm.fmax.f", {std::move(a), std::move(b)});
}

Expr capped_score(const Expr &score, const Expr &cap, Exp2 exp2) {
    // As it is written: x has two uses, for each of which factors would be multiplied anew. One of the score's own
    // joins that of the cap.
    const Expr unit = 2.0f * kLog2E / cap;
    const auto *scaled = score.as<Internal::Mul>();
    const Expr x = strict_float(scaled ? scaled->a * (scaled->b * unit) : score * unit);
    const Expr sign = reinterpret<uint32_t>(x) & Expr(uint32_t{0x80000000});
    Expr t = exp2(reinterpret<float>(reinterpret<uint32_t>(x) | Expr(uint32_t{0x80000000})));
    Expr part = cap - cap * t, whole = 1.0f + t;
    // Where an instruction's error of 2^-22 will do for powers, it will for reciprocals.
    Expr magnitude = exp2 == exp2_of_cuda ? part * reciprocal_of_cuda(whole) : part / whole;
    return reinterpret<float>(reinterpret<uint32_t>(magnitude) ^ sign);
}

Expr negative_infinity() {
    return reinterpret<float>(Expr(0xff800000u));
}

Expr is_negative_infinity(Expr x) {
    return reinterpret<uint32_t>(std::move(x)) == Expr(0xff800000u);
}

Expr is_seen(Expr weight) {
    // By its bits, as compilers may take it that no number is a NaN. What precedes zero is larger than any.
    constexpr uint32_t kInfinity = 0x7f800000;
    Expr before = reinterpret<uint32_t>(std::move(weight)) - Expr(uint32_t{1});
    return select(before < Expr(kInfinity), 1.0f, 0.0f);
}

Expr finite_logit(Expr x, Expr unit) {
    return select(is_negative_infinity(x), kMaskedScore, max(x * std::move(unit), kLowestScore));
}

}  // namespace hattn::generators
