#include "planned_problem.h"

#include <string>

#include "json_text.h"
#include "problem.h"

namespace hattn::test {

nlohmann::json planned(const ContextPtr &context, const PlannedProblem &problem) {
    cases::Case c;
    c.name = "planned";
    c.batch = problem.batch;
    c.query_heads = problem.query_heads;
    c.kv_heads = problem.kv_heads;
    c.query_length = problem.rows;
    c.kv_length = problem.keys;
    c.key_dim = c.value_dim = problem.head_dim;
    c.causal = problem.causal;
    c.softcap = problem.softcap;
    if (problem.mask) {
        c.mask = cases::varying("qk");
    }
    hattn_attention_desc desc = cases::desc_of(c);
    desc.dtype = problem.dtype;
    desc.k_dtype = desc.v_dtype = problem.stored.value_or(problem.dtype);
    return explanation_of(make_plan(context.get(), desc).get());
}

int64_t rows_of_last_tile(const nlohmann::json &plan) {
    if (plan.at("last_kernel").is_null()) {
        return plan.at("tile").at("rows");
    }
    const std::string name = plan.at("last_kernel");
    return std::stoll(name.substr(name.find("_r") + 2));
}

}  // namespace hattn::test
