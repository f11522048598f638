#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

#include <nlohmann/json.hpp>

namespace hattn::roofline {

namespace {

// Seconds that a stage takes at least on the machine, and of what.
struct Bound {
    double seconds = 0.0;
    const char *of = "";
};

Bound bound_of(const LeastWork &work, const Result &r) {
    const double arithmetic = work.products / r.products + work.operations / r.multiply_adds;
    const double bytes = work.bytes / r.reads;
    return bytes > arithmetic ? Bound{bytes, "L1"} : Bound{arithmetic, arithmetic > 0.0 ? "arithmetic" : ""};
}

double share_of_peak(const StageTime &stage, const Result &r) {
    return bound_of(stage.work, r).seconds / stage.seconds;
}

double profiler_cost(const Result &r) {
    return r.profiled_seconds / r.seconds - 1.0;
}

// Standard deviation of the share of time, as a share of it.
double sampling_error(const StageTime &stage, const Result &r) {
    const double samples = r.samples * stage.seconds / r.seconds;
    return samples > 0.0 ? 1.0 / std::sqrt(samples) : 0.0;
}

void print_stage(const StageTime &stage, const Result &r) {
    std::printf("%-30s %9.3f %7.1f%% %4.0f%%", stage.stage.c_str(), stage.seconds * 1e3,
                100.0 * stage.seconds / r.seconds, 100.0 * sampling_error(stage, r));
    if (stage.work.products > 0.0) {
        std::printf(" %9.1f", stage.work.products / stage.seconds / 1e9);
    } else {
        std::printf(" %9s", "");
    }
    const double share = share_of_peak(stage, r);
    if (share > 0.0) {
        std::printf(" %7.1f%%%s %-10s", 100.0 * share, share > 1.0 ? "!" : " ", bound_of(stage.work, r).of);
    } else {
        std::printf(" %8s  %-10s", "-", "");
    }
    std::printf(" %9.4f\n", stage.seconds / r.work.key_scores * 1e9);
    if (stage.fetching > 0.0) {
        std::printf("%-30s %9.3f %7.1f%%\n", "  of which asking for lines", stage.fetching * 1e3,
                    100.0 * stage.fetching / r.seconds);
    }
}

void print_notes(const Result &r) {
    std::printf("\nTimes are shares of the profile's samples, laid over the best run without it; +- is what the number "
                "of samples\n"
                "leaves open. Of peak is the least time over the time: that of the stage's multiply-adds and other "
                "instructions\n"
                "at the peak, or of the bytes that it loads and stores at the speed of reading the first-level cache. "
                "Counted is\n"
                "what tiles compute, also scores that limits mask, but not what rows leave out since they see none of "
                "the keys.\n"
                "Lines are asked for within the loops of products: where memory is waited for, these wait with it.\n");
    const bool beyond = std::any_of(r.stages.begin(), r.stages.end(),
                                    [&](const StageTime &stage) { return share_of_peak(stage, r) > 1.0; });
    if (beyond) {
        std::printf("! More than the peak, which no stage reaches: a core works on several stages at once, and samples "
                    "fall to\n"
                    "the one whose instructions wait, so that time of this stage is with its neighbours; or samples "
                    "are few; or\n"
                    "others used the core while the peak was measured, as a peak below that of quiet runs shows.\n");
        if (r.has_integers) {
            std::printf("Of integers, whose instructions multiply more at a time, the peak is that of float32.\n");
        }
    }
    if (profiler_cost(r) > 0.1) {
        std::printf("The profiler costs much here: small Funcs that are computed often look slower than they are.\n");
    }
}

}  // namespace

void print_table(const Result &r) {
    const double speed = r.visible_flops / r.seconds;
    std::printf("%s over %s, one thread; best run %.3f ms, %.1f GFLOP/s over visible keys, %.1f%% of the peak\n",
                r.kernel.c_str(), r.dtype.c_str(), r.seconds * 1e3, speed / 1e9, 100.0 * speed / r.products);
    std::printf("peak: %s, %.1f GFLOP/s; reading the first-level cache, %.1f GB/s\n", r.products_name.c_str(),
                r.products / 1e9, r.reads / 1e9);
    std::printf("with the profiler the kernel takes %.1f%% longer; %d samples\n\n", 100.0 * profiler_cost(r),
                r.samples);
    std::printf("%-30s %9s %8s %5s %9s %8s  %-10s %9s\n", "stage", "ms", "of time", "+-", "GFLOP/s", "of peak", "of",
                "ns/score");
    for (const StageTime &stage : r.stages) {
        print_stage(stage, r);
    }
    print_notes(r);
}

void print_json(const Result &r) {
    nlohmann::json stages = nlohmann::json::array();
    for (const StageTime &stage : r.stages) {
        const double share = share_of_peak(stage, r);
        stages.push_back({{"stage", stage.stage},
                          {"seconds", stage.seconds},
                          {"fetching_seconds", stage.fetching},
                          {"sampling_error", sampling_error(stage, r)},
                          {"flops", stage.work.products},
                          {"share", share > 0.0 ? nlohmann::json(share) : nlohmann::json()},
                          {"bound", bound_of(stage.work, r).of},
                          {"beyond_peak", share > 1.0}});
    }
    const nlohmann::json text = {
        {"kernel", r.kernel},
        {"dtype", r.dtype},
        {"seconds", r.seconds},
        {"speed", r.visible_flops / r.seconds},
        {"peak", r.products},
        {"peak_name", r.products_name},
        {"fma_peak", r.multiply_adds},
        {"read_peak", r.reads},
        {"profiled_seconds", r.profiled_seconds},
        {"samples", r.samples},
        {"key_scores", r.work.key_scores},
        {"value_scores", r.work.value_scores},
        {"stages", stages},
    };
    std::cout << text.dump(2) << "\n";
}

}  // namespace hattn::roofline
