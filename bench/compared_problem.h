// A benchmark case with keys and values of a type, dense, and without what checking results takes.
#pragma once

#include <vector>

#include "problem.h"

namespace hattn::bench {

// Of integers: one for each 32 elements of a key, or one for each kv head.
enum class Scales { kKeys, kHeads };

// Not copyable: args points into the members.
struct ComparedProblem {
    // keys: of keys and values; queries and output are float32, or of the type if that has 16 bits.
    ComparedProblem(const cases::Case &c, hattn_dtype keys, Scales scales);

    std::vector<double> output() const;  // its elements in logical order

    cases::Problem floats;
    std::vector<cases::TensorData> stored;  // in other types, and scales
    hattn_attention_desc desc;
    hattn_attention_args args;

private:
    const hattn_tensor &keep(cases::TensorData tensor);
};

}  // namespace hattn::bench
