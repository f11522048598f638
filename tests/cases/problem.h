// A case brought to life: memory, deterministic data, and the descriptor and arguments of the C interface.
#pragma once

#include <cstdint>
#include <vector>

#include "case.h"
#include "tensor_data.h"

namespace hattn::cases {

// Of the problem that a case is: all that a plan is made of.
hattn_attention_desc desc_of(const Case &c);

// Not copyable: args points into the members.
class Problem {
public:
    explicit Problem(const Case &c);
    Problem(const Problem &) = delete;
    Problem &operator=(const Problem &) = delete;

    // Every byte of out, lse and scores, gaps included.
    static constexpr unsigned char kOutputFill = 0xa5;
    void fill_outputs();
    bool output_gaps_hold() const;  // no byte between the elements of an output was written
    bool outputs_untouched() const;

    // Points args at the tensors and vectors below again, after any of them changed.
    void bind();

    Case spec;
    TensorData q, k, v, out, lse, scores, bias, mask;
    std::vector<float> alibi_slopes, sinks;
    hattn_attention_desc desc;
    hattn_attention_args args;

private:
    void make_inputs();
    void make_packed_inputs();
    void make_outputs();
    void fill_inputs();
    void fill_operands();
    void poison_hidden();
};

}  // namespace hattn::cases
