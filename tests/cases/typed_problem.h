// A case in other types than float32. Its float32 twin holds the very numbers that the stored ones stand for, so that
// the oracle sees what the kernels see, and nothing but the rounding of outputs is added to its bounds.
#pragma once

#include <string>
#include <string_view>

#include "oracle.h"
#include "problem.h"

namespace hattn::cases {

enum class ScaleKind { kTensor, kHead, kChannel, kKey };

struct StoredTypes {
    const char *name;
    hattn_dtype q, k, v, out;
    ScaleKind k_scales = ScaleKind::kTensor, v_scales = ScaleKind::kTensor;  // of int8 and int4
};

// What is rounded beside the arithmetic.
struct Rounding {
    hattn_dtype out = HATTN_FLOAT32;
    hattn_dtype weights = HATTN_FLOAT32;  // after their sum is taken, which adds roundoff * sum_j p_j |v_j|
    ScaleRatios integers = {};
    // Weights, and integers as values, are sums of two bfloat16 numbers, of which the smallest products are left out:
    // adds kTwoTerms * sum_j p_j |v_j|.
    bool two_terms = false;
};

// 2^-16 of weights, 2^-16 for the products, 2^-15 of values.
inline constexpr double kTwoTerms = 1.0 / (1 << 14);

// Which products kernels round to integers of 16 bits, over keys and values that are both int8 or both int4.
enum class IntegerProducts { kNone, kScores, kBoth };
// May do, those of a target or one by name, see docs/decisions/0057, 0076, 0093 and 0107.
IntegerProducts integer_products(std::string_view name, hattn_dtype k, hattn_dtype v);

// The oracle's numbers, with bounds that allow for it.
Expected evaluate(const hattn_attention_desc &desc, const hattn_attention_args &args, const Rounding &rounding);

// Not copyable: args points into the members.
class TypedProblem {
public:
    TypedProblem(const Case &c, const StoredTypes &types);

    // As kernels that round weights to a type, multiply integers, or sums of two bfloat16 numbers, may have it.
    Expected evaluate(hattn_dtype weight_type = HATTN_FLOAT32, IntegerProducts integers = IntegerProducts::kNone,
                      bool two_terms = false) const;
    Rounding rounding(hattn_dtype weight_type, IntegerProducts integers, bool two_terms = false) const;
    // Every byte of the twin's outputs, and NaN into the one in its type.
    void fill_outputs();
    // Brings the output into the twin's, where difference() looks for it.
    void read_output();

    Problem twin;
    TensorData q, k, v, out, k_scale, v_scale;
    hattn_attention_desc desc;
    hattn_attention_args args;
};

}  // namespace hattn::cases
