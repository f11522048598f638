// What attention must give, in double precision, straight from the semantics, and how far from it a correct
// single-precision kernel may be. Shares nothing with the kernels.
//
// The bound. With u = 2^-24 (half an ulp of 1):
//   score error   e_j = u ((sqrt(Dk) / 2 + 4) scale sum_d |q_d k_jd| + 4 |dot| + 2 (|bias| + |alibi| + |s_j|)
//                 + 8 softcap)
//                 (rounding of a dot product grows with the root of its length relative to the sum of magnitudes; later
//                 steps round their operands; tanh adds an absolute error)
//   weight error  r_j = exp(e_j) - 1 + u (8 + 2 |s_j - lse|)
//                 (relative; the second part is the exponential and its argument)
//   out           sum_j p_j (|v_j| + |o|) r_j + u (sqrt(n) + 8) sum_j p_j |v_j|    n visible keys
//   lse           sum_j p_j r_j + u (sqrt(n) + 8) + 2 u (|lse| + max |s_j|)
//   probabilities p_j (r_j + lse bound)
// Kernels that multiply integers round queries to units of the largest of the row, and weights, by the scales of
// values, to units of the largest of the keys they take at once: to half a unit of 1 / 32767 each, over whole lines
// 1 / 32639 (of int8, but for matrices, queries alone), which ScaleRatios have in them.
//   e_j           + scale max_d |q_d| c sum_d |k_jd| / 65534    c: ratio of the largest scale of keys' elements to the
//                                                               smallest
//   out           + max_j p_j s sum_j |v_j| / 65534             s: likewise of values' blocks; j visible
// Weights below 2^-126 may be flushed to zero. On x86 the kernels use at most a sixth of the bound for out, two fifths
// for lse and half for scores.
// Sinks enter the sums like a key with a value of zero. Scores of 1e4 carry an e_j of about 1e-2, as they must: an ulp
// of 1e4 is 1e-3.
#pragma once

#include <cstdint>
#include <vector>

#include "hattn/hattn.h"

namespace hattn::cases {

// Dense arrays in the logical order of the tensors of the arguments; empty if there is no such output. A NaN means that
// nothing is promised: the row sees a NaN or an infinity.
struct Expected {
    std::vector<double> out, out_bound;
    std::vector<double> lse, lse_bound;  // always computed
    std::vector<double> scores, scores_bound;
};

// Of kernels that multiply integers.
struct ScaleRatios {
    double keys = 0.0, values = 0.0;  // 0: others
};

Expected evaluate(const hattn_attention_desc &desc, const hattn_attention_args &args, const ScaleRatios &ratios = {});

// Whether row i of query head h sees key j: lengths, causal limit, window, mask and a bias of -inf.
bool sees(const hattn_attention_desc &desc, const hattn_attention_args &args, int64_t b, int64_t h, int64_t i,
          int64_t j);

}  // namespace hattn::cases
