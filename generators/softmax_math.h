// Scalar expressions of the softmax, in units of log2.
#pragma once

#include "Halide.h"

namespace hattn::generators {

// Halide compiles float arithmetic as free of NaN and infinity, so the kernels compute with finite stand-ins: a masked
// score is kMaskedScore, and nothing a user can add to a visible score goes below kLowestScore.
inline constexpr float kMaskedScore = -3.4028234e38f;
inline constexpr float kLowestReference = -2.5e38f;
inline constexpr float kLowestScore = -2e38f;
// Of logits that become exponents by a factor of no less than the one, references are no less than the other, lest
// products overflow.
inline constexpr float kSmallestExponentUnit = 1e-30f, kLowestExponent = -3e38f;
// In exponents: weights are at most 2^8, well within float16.
inline constexpr float kReferenceSlack = 8.0f;
inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;

// 2^x for x <= 0. exp2(0) is exactly 1, anything at or below -127 exactly 0; in between the relative error is below
// 2e-7.
Halide::Expr exp2_nonpositive(Halide::Expr x);

// The same in fewer instructions, of which no compiler may leave any out: see link_strictly().
Halide::Expr exp2_strict(Halide::Expr x);

// Likewise, and NaN of a NaN.
Halide::Expr exp2_or_nan(Halide::Expr x);

// The same by CUDA's instruction, ex2.approx.ftz.f32: relative error at most 2^-22, anything below 2^-126 exactly 0.
Halide::Expr exp2_of_cuda(Halide::Expr x);

// The larger of two numbers by CUDA's instruction; Halide compiles max() of two floats to a comparison and a choice.
Halide::Expr max_of_cuda(Halide::Expr a, Halide::Expr b);

using Exp2 = Halide::Expr (*)(Halide::Expr x);

// cap * tanh(score / cap), absolute error below 2e-7 * cap; with exp2_of_cuda() below 2^-20 * cap.
Halide::Expr capped_score(const Halide::Expr &score, const Halide::Expr &cap, Exp2 exp2);

// 1 of a positive weight, else 0; also of NaN, which maxima of weights would keep or not as the CPU does.
Halide::Expr is_seen(Halide::Expr weight);

// -inf is only recognised by its bits (see above).
Halide::Expr is_negative_infinity(Halide::Expr x);
Halide::Expr negative_infinity();

// x * unit, with -inf becoming kMaskedScore and everything else kept above kLowestScore.
Halide::Expr finite_logit(Halide::Expr x, Halide::Expr unit);

}  // namespace hattn::generators
