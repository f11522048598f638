// Ways to call an execute wrongly. Every one starts from the same problem, which uses every argument.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "problem.h"
#include "refusal.h"

namespace hattn::test {

// B = 2, Hq = 6, Hkv = 3, Sq = 5, Sk = 9, Dk = 8, Dv = 12, with bias [B, Hq, Sq, Sk], mask [B, 1, Sq, Sk], slopes,
// sinks, lse, masked scores, lengths and offsets.
cases::Case complete_case();

struct WrongArgs {
    std::string name;
    std::function<void(cases::Problem &)> spoil;
    Refusal refusal;
};
void PrintTo(const WrongArgs &wrong, std::ostream *stream);

std::vector<WrongArgs> wrong_tensors();  // pointers, types, extents
std::vector<WrongArgs> wrong_strides();  // strides, overflow, overlap
std::vector<WrongArgs> wrong_vectors();  // slopes, sinks, lengths, sizes of structures

// The tensors of args by name: q, k, v, out, lse, scores, bias, mask.
struct NamedTensor {
    const char *name;
    hattn_tensor hattn_attention_args::*member;
    bool output;
    bool optional;  // may be left out whatever the plan says
};
const std::vector<NamedTensor> &argument_tensors();

}  // namespace hattn::test
