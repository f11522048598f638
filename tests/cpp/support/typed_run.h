// Runs a problem in other storage types against the oracle.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "compare.h"
#include "devices.h"
#include "handles.h"
#include "json_text.h"
#include "run.h"
#include "typed_problem.h"

namespace hattn::test {

// What kernels of a target on this CPU may round weights to: bfloat16, where they multiply it as it is.
inline hattn_dtype weight_type_on(const std::string &target, const cases::StoredTypes &types) {
    static const nlohmann::json info = info_of(make_context().get());
    const nlohmann::json &kernels = info.at("kernels");
    const bool all_bfloat16 = types.q == HATTN_BFLOAT16 && types.k == HATTN_BFLOAT16 && types.v == HATTN_BFLOAT16;
    const bool is_native = std::any_of(kernels.begin(), kernels.end(), [&](const nlohmann::json &row) {
        return row.at("target") == target && row.at("storage") == "bfloat16" && row.at("runnable");
    });
    return all_bfloat16 && is_native ? HATTN_BFLOAT16 : HATTN_FLOAT32;
}

inline cases::IntegerProducts integer_products(const std::string &name, const cases::StoredTypes &types) {
    return cases::integer_products(name, types.k, types.v);
}

// Whether a plan multiplies sums of two bfloat16 numbers, see docs/decisions/0068.
inline bool multiplies_two_terms(const hattn_plan *plan) {
    return explanation_of(plan).value("kernel", "").starts_with("amx_halves_");
}

// Plans and executes `problem`, whose outputs are as the oracle has them, within what rounding weights to `weight_type`
// adds, or to what tensor cores multiply, and that of integers; on the CPU nothing is allocated meanwhile.
inline void expect_oracle(hattn_context *context, cases::TypedProblem &problem, hattn_dtype weight_type,
                          cases::IntegerProducts integers = cases::IntegerProducts::kNone) {
    problem.fill_outputs();
    hattn_plan *plan = nullptr;
    ASSERT_EQ(hattn_plan_create(context, &problem.desc, &plan), HATTN_OK) << hattn_last_error(context);
    const PlanPtr owner(plan);
    const Outcome outcome = execute(plan, problem.args);
    ASSERT_TRUE(outcome.ok()) << outcome.text();
    problem.read_output();
    const hattn_dtype multiplied = matrix_type(plan);
    const hattn_dtype rounded = multiplied == HATTN_FLOAT32 ? weight_type : multiplied;
    EXPECT_EQ(cases::difference(problem.twin, problem.evaluate(rounded, integers, multiplies_two_terms(plan))), "");
    if (problem.desc.device == HATTN_CPU) {
        EXPECT_EQ(outcome.allocations, 0u);
    }
}

}  // namespace hattn::test
