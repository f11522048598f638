// Holds the outputs of an executed problem against the oracle of the tests, at a cost that fits a benchmark.
#pragma once

#include <string>

#include "problem.h"

namespace hattn::bench {

// Empty if the outputs are right, else a sentence. A small problem is compared whole. Of a large one a sample of rows,
// among them the first and the last of the first and the last head; and every element of out must have been written and
// be finite.
std::string verify(const cases::Problem &problem);

}  // namespace hattn::bench
