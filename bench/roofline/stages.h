// From Funcs to the stages that people speak of, and what each has to do at least.
#pragma once

#include <string>
#include <vector>

#include "call_work.h"
#include "compiled_kernel.h"

namespace hattn::roofline {

// What a stage does at least: arithmetic that a core does in its vector registers, and bytes between these and the
// first-level cache.
struct LeastWork {
    double products = 0.0;    // operations of the two products, a multiply-add being two
    double operations = 0.0;  // others, of an instruction for a vector as many as of a multiply-add
    double bytes = 0.0;
};

struct StageTime {
    std::string stage;
    double seconds;
    double
        fetching;  // of these, in Funcs that ask for lines in the stage's loops, and are one with them; see stages.cpp
    LeastWork work;
};

// Of the problem, for the work of elements.
struct Dims {
    double key, value;    // elements of a head
    double stored_bytes;  // of an element of keys and values
};

// Sums the Funcs of a profile into stages; throws if a Func is in no row of the table.
std::vector<StageTime> stage_times(const std::vector<FuncTime> &funcs, const CallWork &work, KeyStorage storage,
                                   const Dims &dims);

}  // namespace hattn::roofline
