// Holds a result against the oracle.
#pragma once

#include <string>
#include <vector>

#include "oracle.h"
#include "problem.h"

namespace hattn::cases {

// Empty if every element of `actual` is within its bound of `expected` (both dense, logical order); else a sentence
// with the count, the first and the worst mismatch. A bound of 0 asks for equality; infinities must be equal; where a
// NaN is expected anything goes; a NaN elsewhere is a mismatch.
std::string difference(const std::string &name, const hattn_tensor &actual, const std::vector<double> &expected,
                       const std::vector<double> &bound);

// All outputs of the problem, and that nothing between their elements was written.
std::string difference(const Problem &problem, const Expected &expected);

// Largest error / bound over the finite elements, for judging the bound itself.
double worst_ratio(const hattn_tensor &actual, const std::vector<double> &expected, const std::vector<double> &bound);

}  // namespace hattn::cases
