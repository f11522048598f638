// One benchmark: a problem with its plan and workspace, and the best times and limits seen for it so far.
#pragma once

#include <string>
#include <vector>

#include "bench_cases.h"
#include "hattn/hattn.hpp"
#include "machine_limits.h"
#include "problem.h"

namespace hattn::bench {

class MeasuredCase {
public:
    // Makes data, plan and workspace.
    MeasuredCase(Context &context, const BenchCase &bench_case);

    // Runs once and holds the result against the oracle; a sentence if it is wrong.
    std::string check();

    // Runs once; seconds.
    double run();

    // Looks at the machine's limits for some 20 ms, best between runs.
    void measure_limits();

    const std::string &name() const {
        return problem_.spec.name;
    }
    // "algorithm kernel"
    const std::string &kernel() const {
        return kernel_;
    }
    Bound bound() const {
        return bound_;
    }
    int threads() const {
        return threads_;
    }
    double best_seconds() const {
        return best_seconds_;
    }
    double flops_per_second() const {
        return flops_ / best_seconds_;
    }
    double read_per_second() const {
        return bytes_ / best_seconds_;
    }
    // The peak of the instruction set that the kernel was compiled for; of the widest there is for a generic kernel.
    double peak_flops() const;
    // Of the machine over this problem's keys and values; 0 unless bound by reading.
    double peak_read() const {
        return peak_read_.value();
    }

private:
    cases::Problem problem_;
    Bound bound_;
    Plan plan_;
    Workspace workspace_;
    double flops_, bytes_;
    double best_seconds_;
    std::string kernel_;
    Isa isa_ = Isa::kBaseline;
    int threads_ = 1;
    Best peak_read_;
};

}  // namespace hattn::bench
