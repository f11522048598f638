#include "run.h"

#include <cstring>

#include "heap_counter.h"
#include "workspace.h"

namespace hattn::test {

const char *algorithm_name(hattn_algorithm algorithm) {
    switch (algorithm) {
    case HATTN_ALGORITHM_AUTO:
        return "auto";
    case HATTN_ALGORITHM_NAIVE:
        return "naive";
    case HATTN_ALGORITHM_FLASH:
        return "flash";
    case HATTN_ALGORITHM_SPLIT_KV:
        return "split_kv";
    case HATTN_ALGORITHM_UNFUSED:
        return "unfused";
    }
    return "unknown";
}

Outcome execute(const hattn_plan *plan, hattn_attention_args args) {
    size_t bytes = 0;
    Outcome outcome = outcome_of(hattn_plan_workspace_size(plan, &bytes));
    if (!outcome.ok()) {
        return outcome;
    }
    Workspace workspace(bytes);
    workspace.give_to(args);
    uint64_t before = heap_allocations();
    hattn_status status = hattn_plan_execute(plan, &args);
    uint64_t after = heap_allocations();
    outcome = outcome_of(status);
    outcome.allocations = after - before;
    if (!workspace.intact()) {
        return {HATTN_INTERNAL_ERROR, "memory outside the workspace was written; then " + outcome.text(), 0};
    }
    return outcome;
}

Outcome run(hattn_context *context, cases::Problem &problem, hattn_algorithm algorithm, int32_t threads) {
    hattn_attention_desc desc = problem.desc;
    desc.algorithm = algorithm;
    desc.threads = threads;
    problem.fill_outputs();
    hattn_plan *plan = nullptr;
    Outcome outcome = outcome_of(hattn_plan_create(context, &desc, &plan), context);
    PlanPtr owner(plan);
    return outcome.ok() ? execute(plan, problem.args) : outcome;
}

std::vector<float> output_values(const cases::Problem &problem) {
    std::vector<float> values;
    for (const cases::TensorData *tensor : {&problem.out, &problem.lse, &problem.scores}) {
        if (tensor->given()) {
            std::vector<float> more = cases::dense_floats(tensor->view);
            values.insert(values.end(), more.begin(), more.end());
        }
    }
    return values;
}

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace hattn::test
