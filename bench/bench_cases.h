// The benchmarks, as data: problems of the same type as the tests'.
#pragma once

#include <vector>

#include "case.h"

namespace hattn::bench {

// Which of the machine's limits a problem should reach: few query rows per key are bound by reading keys and values.
enum class Bound { kArithmetic, kReading };

struct BenchCase {
    cases::Case problem;
    Bound bound = Bound::kArithmetic;
};

const std::vector<BenchCase> &bench_cases();

}  // namespace hattn::bench
