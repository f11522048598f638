// Runs a problem through the C interface.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compare.h"
#include "handles.h"
#include "problem.h"

namespace hattn::test {

inline constexpr hattn_algorithm kAlgorithms[] = {HATTN_ALGORITHM_AUTO, HATTN_ALGORITHM_NAIVE, HATTN_ALGORITHM_FLASH,
                                                  HATTN_ALGORITHM_SPLIT_KV, HATTN_ALGORITHM_UNFUSED};
const char *algorithm_name(hattn_algorithm algorithm);

// Plans, executes in a fresh workspace, and checks that nothing around the workspace was written.
Outcome run(hattn_context *context, cases::Problem &problem, hattn_algorithm algorithm = HATTN_ALGORITHM_AUTO,
            int32_t threads = 0);
Outcome execute(const hattn_plan *plan, hattn_attention_args args);

// The outputs that problem has, in order, as bytes: for comparisons to the bit.
std::vector<float> output_values(const cases::Problem &problem);
// Equal to the bit; differing NaNs count as different.
bool same_bits(const std::vector<float> &a, const std::vector<float> &b);

// A problem and what the oracle makes of it.
struct Prepared {
    explicit Prepared(const cases::Case &c) : problem(c), expected(cases::evaluate(problem.desc, problem.args)) {}
    cases::Problem problem;
    cases::Expected expected;
};

}  // namespace hattn::test
