// Attention through the C++ interface, plan and workspace reused.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "machine_limits.h"
#include "measured.h"
#include "paged_keys.h"
#include "problem.h"

namespace hattn::bench {

class MeasuredAttention : public Measured {
public:
    MeasuredAttention(Context context, const BenchCase &bench_case);

    std::string check() override;
    double run() override;
    void measure_limits() override;
    void measure_held_limit(double seconds) override;
    Figures figures() const override;
    std::string label() const override {
        return label_;
    }
    int threads() const override {
        return threads_;
    }
    std::vector<NamedTensor> tensors() const override;

private:
    cases::Problem problem_;  // keys side by side, for the oracle and for whoever computes the same
    Work work_;
    Context context_;
    std::optional<PagedKeys> paged_;
    Plan plan_;
    Workspace workspace_;
    hattn_attention_args args_;  // that run; outputs are problem_'s
    double best_seconds_;
    std::string label_;
    Isa isa_ = Isa::kBaseline;  // that the kernel was compiled for; the widest there is for a generic kernel
    int threads_ = 1;
    std::vector<Span> visible_;  // k and v; empty unless bound by reading
    Best peak_read_, held_flops_;
};

}  // namespace hattn::bench
