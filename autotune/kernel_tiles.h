// What the library and the machine offer for a problem, from hattn_info() and hattn_plan_explain().
#pragma once

#include <vector>

#include "space.h"
#include "trial.h"
#include "tuner.h"

namespace hattn::autotune {

// The kernels that go with those the planner takes when it is asked for each algorithm that the request allows.
std::vector<AlgorithmKernels> kernels_for(const Bench &bench, const Request &request, Problems &problems);

// The model's time of a candidate on the device, or the CPU, of the request's first shape.
class Model {
public:
    // target: of the default's kernels.
    Model(const Bench &bench, const Request &request, const std::string &target);
    double predicted_seconds(const Candidate &candidate) const;

private:
    const Shape &shape_;
    const Machine &machine_;
    double lanes_ = 1.0;          // of the CPU
    double compute_units_ = 1.0;  // of a device
};

}  // namespace hattn::autotune
