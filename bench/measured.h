// One benchmark at work: what it needs to run, and the best times and limits seen for it so far.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench_cases.h"
#include "hattn/hattn.hpp"

namespace hattn::bench {

// Noise of a shared machine only adds time, so all of it is of the fastest run and the best look at the limit.
struct Figures {
    double seconds = 0.0;
    const char *unit = "";        // of what a run does: "flop", "byte" or "call"
    double speed = 0.0;           // units per second
    double limit = 0.0;           // what the machine reaches at best, in the same run; 0: there is none
    std::string limit_name = {};  // what it does then
    // What the machine held for as long as the fastest run took, at best: a limit that is seen for half a millisecond
    // is one that a shared machine gives to no run of a tenth of a second. 0: nobody looked.
    double held_limit = 0.0;
    // Seconds that a case bound by reading needs at least, be it for reading or, at kReachable of the peak, for its
    // multiply-adds. 0: not known.
    double bound = 0.0;
};
inline constexpr double kReachable = 0.85;

struct NamedTensor {
    const char *name;
    hattn_tensor tensor;
};

class Measured {
public:
    virtual ~Measured() = default;

    // Runs once and holds the result against the oracle; a sentence if it is wrong.
    virtual std::string check() = 0;
    // Runs once; seconds.
    virtual double run() = 0;
    // Looks at the machine's limits for some 20 ms, best between runs.
    virtual void measure_limits() = 0;
    // Looks at a limit of arithmetic for as long as the fastest run took, again and again for `seconds`, once at least.
    // Reading is looked at for as long as that anyway.
    virtual void measure_held_limit(double) {}
    virtual Figures figures() const = 0;
    // What runs: "algorithm kernel", or the function.
    virtual std::string label() const = 0;
    virtual int threads() const = 0;
    // Inputs and outputs, for whoever wants to compute the same.
    virtual std::vector<NamedTensor> tensors() const = 0;
};

// Why the case cannot be measured on this machine; empty if it can.
std::string why_not(const BenchCase &bench_case);

// Makes data, plan and workspace. threads: 0 for one per core; the case may ask for another number.
std::unique_ptr<Measured> measured(const BenchCase &bench_case, int threads);

}  // namespace hattn::bench
