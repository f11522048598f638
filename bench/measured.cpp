#include "measured.h"

#include <optional>

#include "machine_limits.h"
#include "measured_append.h"
#include "measured_attention.h"
#include "scoped_variable.h"

namespace hattn::bench {

namespace {

Context make_context(const BenchCase &bench_case, int threads) {
    ContextDesc desc;
    desc.threads = bench_case.threads > 0 ? bench_case.threads : threads;
    std::string force = bench_case.algorithm.empty() ? "" : "algorithm=" + bench_case.algorithm;
    if (bench_case.force_avx2) {
        force = "target=x86-avx2";
    }
    std::optional<cases::ScopedVariable> forced;
    if (!force.empty()) {
        forced.emplace("HATTN_FORCE", force);
    }
    return Context(desc);
}

}  // namespace

std::string why_not(const BenchCase &bench_case) {
    return bench_case.force_avx2 && !isa_runs(Isa::kAvx512) ? "this machine has no AVX-512: all cases run on AVX2" : "";
}

std::unique_ptr<Measured> measured(const BenchCase &bench_case, int threads) {
    Context context = make_context(bench_case, threads);
    if (bench_case.work == Work::kAppending) {
        return std::make_unique<MeasuredAppend>(std::move(context), bench_case);
    }
    return std::make_unique<MeasuredAttention>(std::move(context), bench_case);
}

}  // namespace hattn::bench
