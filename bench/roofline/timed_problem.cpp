#include "timed_problem.h"

#include <nlohmann/json.hpp>

#include "stopwatch.h"
#include "verify.h"

namespace hattn::roofline {

namespace {

cases::StoredTypes types_of(hattn_dtype keys) {
    const bool halves = keys == HATTN_FLOAT16 || keys == HATTN_BFLOAT16;
    const hattn_dtype rows = halves ? keys : HATTN_FLOAT32;
    return {"", rows, keys, keys, rows, cases::ScaleKind::kKey, cases::ScaleKind::kKey};
}

ContextDesc one_thread() {
    ContextDesc desc;
    desc.threads = 1;
    return desc;
}

}  // namespace

TimedProblem::TimedProblem(const cases::Case &c, hattn_dtype keys)
    : problem_(c, types_of(keys)),
      context_(one_thread()),
      plan_(context_, problem_.desc),
      workspace_(plan_.workspace_size()) {
    problem_.args.workspace = workspace_.data();
    problem_.args.workspace_size = workspace_.size();
}

std::string TimedProblem::check(KeyStorage storage) {
    problem_.fill_outputs();
    plan_.execute(problem_.args);
    problem_.read_output();
    const hattn_tensor &keys = problem_.args.k;
    const cases::Rounding rounding = problem_.rounding(multiplies_stored(storage) ? HATTN_BFLOAT16 : HATTN_FLOAT32,
                                                       cases::integer_products(target(), keys.dtype, keys.dtype),
                                                       storage == KeyStorage::kHalvesMatrices);
    return bench::Verification(problem_.twin, bench::Verification::kBudget, rounding).check(problem_.twin);
}

double TimedProblem::run() {
    const bench::Stopwatch watch;
    plan_.execute(problem_.args);
    return watch.seconds();
}

std::string TimedProblem::kernel() const {
    return nlohmann::json::parse(plan_.explain()).at("kernel");
}

std::string TimedProblem::target() const {
    return nlohmann::json::parse(plan_.explain()).at("target");
}

bench::Isa TimedProblem::isa() const {
    const std::string name = target();
    if (name.find("avx512") != std::string::npos) {
        return bench::Isa::kAvx512;
    }
    return name.find("avx2") != std::string::npos ? bench::Isa::kAvx2 : bench::widest_isa();
}

}  // namespace hattn::roofline
