// From Funcs to the stages that people speak of, and the arithmetic of each.
#pragma once

#include <string>
#include <vector>

#include "case.h"
#include "compiled_kernel.h"

namespace hattn::roofline {

struct StageTime {
    std::string stage;
    double seconds;
    double flops;  // multiply-adds of the two products, each two; 0 for what is none
};

// Sums the Funcs of a profile into stages; throws if a Func is in no row of the table. flops: of one of the products.
std::vector<StageTime> stage_times(const std::vector<FuncTime> &funcs, double key_flops, double value_flops);

// Scores that a kernel of whole tiles computes, in all heads, including what masks take away again: of a tile's rows up
// to the granule, or block of matrices, in which the last key is that any of them sees.
double computed_scores(const cases::Case &c, const generators::KernelSpec &spec);

}  // namespace hattn::roofline
