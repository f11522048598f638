#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

namespace {

// Of no less than -127, which gives zero.
Expr exp2_clamped(const Expr &x) {
    // x = n + f with n an integer and f in [-1/2, 1/2]. Truncation rounds towards zero, so half a unit is taken off
    // first. Clamping at -127 makes the exponent field zero, which reads as 0.0f.
    Expr n = cast<int>(x - 0.5f);
    Expr f = x - cast<float>(n);
    // Minimax for 2^f relative to 2^f with the constant term held at 1: error 9.2e-8 before rounding.
    Expr p = 1.326472709e-03f;
    for (float coefficient : {9.671512682e-03f, 5.550733744e-02f, 2.402224208e-01f, 6.931469776e-01f, 1.0f}) {
        p = p * f + coefficient;
    }
    return p * reinterpret<float>((n + 127) << 23);
}

}  // namespace

Expr exp2_nonpositive(Expr x) {
    return exp2_clamped(max(x, -127.0f));
}

Expr exp2_or_nan(Expr x) {
    // Compared as numbers that may be NaNs, which max() is not: x86 then has an operand order to keep.
    return exp2_clamped(strict_float(select(x < -127.0f, -127.0f, x)));
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

Expr tanh_via_exp2(Expr x, Exp2 exp2) {
    Expr t = exp2(abs(x) * (-2.0f * kLog2E));
    // Where an instruction's error of 2^-22 will do for powers, it will for reciprocals.
    const bool by_instruction = exp2 == exp2_of_cuda;
    Expr magnitude = by_instruction ? (1.0f - t) * reciprocal_of_cuda(1.0f + t) : (1.0f - t) / (1.0f + t);
    return select(x < 0.0f, -magnitude, magnitude);
}

Expr negative_infinity() {
    return reinterpret<float>(Expr(0xff800000u));
}

Expr is_negative_infinity(Expr x) {
    return reinterpret<uint32_t>(std::move(x)) == Expr(0xff800000u);
}

Expr finite_logit(Expr x, Expr unit) {
    return select(is_negative_infinity(x), kMaskedScore, max(x * std::move(unit), kLowestScore));
}

}  // namespace hattn::generators
