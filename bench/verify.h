// Holds the outputs of an executed problem against the oracle of the tests, at a cost that fits a benchmark.
#pragma once

#include <string>
#include <vector>

#include "oracle.h"
#include "problem.h"
#include "typed_problem.h"

namespace hattn::bench {

// What the oracle makes of a problem, to hold any number of results against. A small problem is computed whole, of a
// large one a sample of rows, among them the first and the last of the first and the last head.
class Verification {
public:
    static constexpr double kBudget = 4e7;  // multiply-adds in the oracle, about 0.1 s

    // Of a problem in other types than float32, its twin.
    explicit Verification(const cases::Problem &problem, double budget = kBudget, const cases::Rounding &rounding = {});

    // The problem, or one with the same inputs, after an execute. Empty if its outputs are right, else a sentence. Of a
    // large problem every element of out must have been written and be finite.
    std::string check(const cases::Problem &problem) const;

private:
    struct Row {
        int64_t b, h, i;
        cases::Expected expected;
    };

    std::vector<Row> rows_;  // of a large problem
    cases::Expected whole_;  // of a small one
};

// Both at once.
std::string verify(const cases::Problem &problem);

}  // namespace hattn::bench
