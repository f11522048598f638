// What was found of a kernel, and how it is told.
#pragma once

#include <string>
#include <vector>

#include "stages.h"

namespace hattn::roofline {

struct Result {
    std::string kernel, dtype;
    bool has_integers = false;      // of keys and values
    double seconds = 0.0;           // best run, as the kernel is
    double profiled_seconds = 0.0;  // likewise, with the profiler in it
    double visible_flops = 0.0;
    CallWork work;  // of one run
    // Of the machine, see Peaks.
    double products = 0.0, multiply_adds = 0.0, reads = 0.0;
    std::string products_name;
    std::vector<StageTime> stages;  // of one run; sum up to `seconds`
    int samples = 0;
};

void print_table(const Result &result);
void print_json(const Result &result);

}  // namespace hattn::roofline
