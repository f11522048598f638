#include "measured_attention.h"

#include <algorithm>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

#include "stopwatch.h"
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

std::optional<PagedKeys> paged_keys(Context &context, const cases::Problem &problem, int64_t page_size) {
    return page_size > 0 ? std::optional<PagedKeys>(std::in_place, context, problem, page_size) : std::nullopt;
}

hattn_attention_desc plan_desc(const cases::Problem &problem, int64_t page_size) {
    hattn_attention_desc desc = problem.desc;
    desc.page_size = page_size;
    return desc;
}

}  // namespace

MeasuredAttention::MeasuredAttention(Context context, const BenchCase &bench_case)
    : problem_(bench_case.problem),
      work_(bench_case.work),
      context_(std::move(context)),
      paged_(paged_keys(context_, problem_, bench_case.page_size)),
      plan_(context_, plan_desc(problem_, bench_case.page_size)),
      workspace_(plan_.workspace_size()),
      args_(problem_.args),
      best_seconds_(std::numeric_limits<double>::infinity()) {
    if (paged_) {
        paged_->bind(args_);
    }
    args_.workspace = workspace_.data();
    args_.workspace_size = workspace_.size();
    auto plan = nlohmann::json::parse(plan_.explain());
    label_ = plan.at("algorithm").get<std::string>() + ' ' + plan.at("kernel").get<std::string>();
    isa_ = isa_of_target(plan.at("target").get<std::string>());
    threads_ = plan.at("threads").get<int>();
    if (work_ == Work::kReading) {
        visible_ = visible_spans(problem_);
    }
}

std::string MeasuredAttention::check() {
    problem_.fill_outputs();
    plan_.execute(args_);
    return verify(problem_);
}

double MeasuredAttention::run() {
    Stopwatch watch;
    plan_.execute(args_);
    double seconds = watch.seconds();
    best_seconds_ = std::min(best_seconds_, seconds);
    return seconds;
}

void MeasuredAttention::measure_limits() {
    if (work_ == Work::kCalling) {
        return;
    }
    look_at_limit([this](double look) {
        best_flops(isa_, threads_).offer(measure_flops(isa_, threads_, look));
        if (work_ == Work::kReading) {
            peak_read_.offer(measure_read(visible_, threads_, look));
        }
    });
}

void MeasuredAttention::measure_held_limit(double seconds) {
    if (work_ != Work::kArithmetic) {
        return;
    }
    Stopwatch watch;
    do {
        held_flops_.offer(measure_flops(isa_, threads_, best_seconds_));
    } while (watch.seconds() < seconds);
    best_flops(isa_, threads_).offer(held_flops_.value());
}

Figures MeasuredAttention::figures() const {
    const double bytes = visible_bytes(problem_.spec), flops = visible_flops(problem_.spec);
    const double peak = best_flops(isa_, threads_).value();
    switch (work_) {
    case Work::kReading:
        return {best_seconds_,
                "byte",
                bytes / best_seconds_,
                peak_read_.value(),
                "reading the same bytes",
                0.0,
                std::max(bytes / peak_read_.value(), flops / (kReachable * peak))};
    case Work::kCalling:
        return {best_seconds_, "call", 1.0 / best_seconds_, 0.0};
    default:
        return {best_seconds_,
                "flop",
                flops / best_seconds_,
                peak,
                std::string(isa_name(isa_)) + " multiply-adds, threads: " + std::to_string(threads_),
                held_flops_.value()};
    }
}

std::vector<NamedTensor> MeasuredAttention::tensors() const {
    if (paged_) {
        return {};
    }
    const hattn_attention_args &args = problem_.args;
    const int64_t heads = problem_.spec.query_heads;
    const Extents per_head = {1, 1, 1, heads};
    return {{"q", args.q},
            {"k", args.k},
            {"v", args.v},
            {"out", args.out},
            {"bias", args.bias},
            {"mask", args.mask},
            {"alibi_slopes", bhsd(args.alibi_slopes, per_head)},
            {"sinks", bhsd(args.sinks, per_head)}};
}

}  // namespace hattn::bench
