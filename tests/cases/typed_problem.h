// A case in other types than float32. Its float32 twin holds the very numbers that the stored ones stand for, so that
// the oracle sees what the kernels see, and nothing but the rounding of outputs is added to its bounds.
#pragma once

#include <string>

#include "oracle.h"
#include "problem.h"

namespace hattn::cases {

enum class ScaleKind { kTensor, kHead, kChannel, kKey };

struct StoredTypes {
    const char *name;
    hattn_dtype q, k, v, out;
    ScaleKind k_scales = ScaleKind::kTensor, v_scales = ScaleKind::kTensor;  // of int8 and int4
};

// Not copyable: args points into the members.
class TypedProblem {
public:
    TypedProblem(const Case &c, const StoredTypes &types);

    // The oracle's numbers, with bounds for the output's type. weight_type: to which weights are rounded after their
    // sum is taken, which adds roundoff * sum_j p_j |v_j|.
    Expected evaluate(hattn_dtype weight_type = HATTN_FLOAT32) const;
    // Brings the output into the twin's, where difference() looks for it.
    void read_output();

    Problem twin;
    hattn_attention_desc desc;
    hattn_attention_args args;

private:
    void add_weight_rounding(Expected &expected, double weight_roundoff) const;

    TensorData q_, k_, v_, out_, k_scale_, v_scale_;
};

}  // namespace hattn::cases
