// A problem with its sequences one behind the other instead of padded to one length.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.h"

namespace hattn::cases {

enum class PackedKeys { kNo, kYes };

// Not copyable: args points into the members.
class PackedProblem {
public:
    // Takes the numbers of `padded`, which must outlive it and have no score output.
    PackedProblem(const Problem &padded, PackedKeys packed_keys);
    PackedProblem(const PackedProblem &) = delete;
    PackedProblem &operator=(const PackedProblem &) = delete;

    // One sequence as a batch of one, neither packed nor padded: its rows of the tensors below.
    struct Alone {
        hattn_attention_desc desc;
        hattn_attention_args args;
    };
    Alone alone(int64_t sequence) const;

    std::vector<int32_t> cu_seqlens_q, cu_seqlens_k;  // the latter is empty if keys are not packed
    TensorData q, k, v, out, lse, bias, mask;
    hattn_attention_desc desc;
    hattn_attention_args args;

private:
    TensorData packed_rows(const hattn_tensor &padded, const std::vector<int32_t> &cu_seqlens) const;
    TensorData packed_operand(const TensorData &padded, bool varies_over_rows) const;

    const Problem &padded_;
};

}  // namespace hattn::cases
