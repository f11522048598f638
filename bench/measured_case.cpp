#include "measured_case.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

#include "verify.h"
#include "work.h"

namespace hattn::bench {

namespace {

Isa isa_of_target(const std::string &target) {
    if (target.find("avx512") != std::string::npos) {
        return Isa::kAvx512;
    }
    return target.find("avx2") != std::string::npos ? Isa::kAvx2 : widest_isa();
}

// The best over the whole process: the limit of arithmetic does not depend on the case.
Best &best_flops(Isa isa, int threads) {
    static std::map<std::pair<Isa, int>, Best> best;
    return best[{isa, threads}];
}

Span span_of(const hattn_tensor &tensor) {
    return {tensor.data, static_cast<size_t>(cases::element_count(tensor)) * cases::element_size(tensor.dtype)};
}

}  // namespace

MeasuredCase::MeasuredCase(Context &context, const BenchCase &bench_case)
    : problem_(bench_case.problem),
      bound_(bench_case.bound),
      plan_(context, problem_.desc),
      workspace_(plan_.workspace_size()),
      flops_(visible_flops(problem_.spec)),
      bytes_(key_value_bytes(problem_.spec)),
      best_seconds_(std::numeric_limits<double>::infinity()) {
    problem_.args.workspace = workspace_.data();
    problem_.args.workspace_size = workspace_.size();
    auto plan = nlohmann::json::parse(plan_.explain());
    kernel_ = plan.at("algorithm").get<std::string>() + ' ' + plan.at("kernel").get<std::string>();
    isa_ = isa_of_target(plan.at("target").get<std::string>());
    threads_ = plan.at("threads").get<int>();
}

std::string MeasuredCase::check() {
    problem_.fill_outputs();
    plan_.execute(problem_.args);
    return verify(problem_);
}

double MeasuredCase::run() {
    auto begin = std::chrono::steady_clock::now();
    plan_.execute(problem_.args);
    auto end = std::chrono::steady_clock::now();
    double seconds = std::chrono::duration<double>(end - begin).count();
    best_seconds_ = std::min(best_seconds_, seconds);
    return seconds;
}

void MeasuredCase::measure_limits() {
    // Many short looks: on a shared machine a short one is likelier to be undisturbed, as short runs of the case are.
    constexpr int kLeast = 3;
    constexpr double kLook = 5e-4, kTotal = 0.02;  // seconds
    auto begin = std::chrono::steady_clock::now();
    auto elapsed = [begin] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
    for (int look = 0; look < kLeast || elapsed() < kTotal; ++look) {
        best_flops(isa_, threads_).offer(measure_flops(isa_, threads_, kLook));
        if (bound_ == Bound::kReading) {
            peak_read_.offer(measure_read({span_of(problem_.k.view), span_of(problem_.v.view)}, threads_, kLook));
        }
    }
}

double MeasuredCase::peak_flops() const {
    return best_flops(isa_, threads_).value();
}

}  // namespace hattn::bench
