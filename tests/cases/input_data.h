// The numbers of a problem.
#pragma once

#include <vector>

#include "case.h"
#include "tensor_data.h"

namespace hattn::cases {

void fill_normal(const hattn_tensor &tensor, uint64_t seed);
void fill_queries_keys_values(const Case &c, const hattn_tensor &q, const hattn_tensor &k, const hattn_tensor &v);
void fill_bias(const Case &c, const hattn_tensor &bias);
void fill_mask(const Case &c, const hattn_tensor &mask);
std::vector<float> make_alibi_slopes(const Case &c);
std::vector<float> make_sinks(const Case &c);

// NaN and Inf in keys and values that no row of the group sees, in query rows past their sequence, and in a bias past
// the lengths; with Data::kPoisonPartlySeen also NaN in the last key that some rows of a group see and others do not.
void poison(const Case &c, const hattn_attention_desc &desc, const hattn_attention_args &args);

}  // namespace hattn::cases
