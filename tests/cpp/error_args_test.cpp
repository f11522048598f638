// Every argument of an execute, wrong in each way: exact status, the sentence, and nothing written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "support/run.h"
#include "support/workspace.h"
#include "support/wrong_args.h"

namespace {

using namespace hattn;
using test::WrongArgs;

std::vector<WrongArgs> all_wrong() {
    std::vector<WrongArgs> all;
    for (const auto &family : {test::wrong_tensors(), test::wrong_strides(), test::wrong_vectors()}) {
        all.insert(all.end(), family.begin(), family.end());
    }
    return all;
}

class ArgsErrors : public testing::TestWithParam<WrongArgs> {
protected:
    test::ContextPtr context_ = test::make_context();
    cases::Problem problem_{test::complete_case()};
};

TEST_P(ArgsErrors, PlanExecute) {
    test::PlanPtr plan = test::make_plan(context_.get(), problem_.desc);
    GetParam().spoil(problem_);
    EXPECT_EQ(test::mismatch(test::execute(plan.get(), problem_.args), GetParam().refusal), "");
    EXPECT_TRUE(problem_.outputs_untouched());
}

TEST_P(ArgsErrors, OneShot) {
    GetParam().spoil(problem_);
    hattn_status status = hattn_attention(context_.get(), &problem_.desc, &problem_.args);
    EXPECT_EQ(test::mismatch(test::outcome_of(status, context_.get()), GetParam().refusal), "");
    EXPECT_TRUE(problem_.outputs_untouched());
}

INSTANTIATE_TEST_SUITE_P(Wrong, ArgsErrors, testing::ValuesIn(all_wrong()),
                         [](const testing::TestParamInfo<WrongArgs> &wrong) { return wrong.param.name; });

class Args : public testing::Test {
protected:
    std::string refused(hattn_status status, const test::Refusal &refusal) {
        std::string text = test::mismatch(test::outcome_of(status, context_.get()), refusal);
        return problem_.outputs_untouched() ? text : text + "; outputs were written";
    }

    test::ContextPtr context_ = test::make_context();
    cases::Problem problem_{test::complete_case()};
};

TEST_F(Args, TheCompleteProblemItselfIsRight) {
    cases::Expected expected = cases::evaluate(problem_.desc, problem_.args);
    test::Outcome outcome = test::run(context_.get(), problem_);
    ASSERT_TRUE(outcome.ok()) << outcome.text();
    EXPECT_EQ(cases::difference(problem_, expected), "");
}

TEST_F(Args, StridesAtTheEndsOf64Bits) {
    constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
    test::PlanPtr plan = test::make_plan(context_.get(), problem_.desc);
    hattn_attention_args args = problem_.args;
    // Bytes of 2^58 floats, and of as many behind them, just fit; rounding them up does not.
    args.k.stride[1] = -(int64_t{1} << 58) / (args.k.extent[1] - 1);
    EXPECT_EQ(refused(hattn_plan_execute(plan.get(), &args), {HATTN_OVERFLOW, {"k"}}), "");
    args.k.stride[1] = kLowest;
    EXPECT_EQ(refused(hattn_plan_execute(plan.get(), &args), {HATTN_OVERFLOW, {"k"}}), "");
}

// They are the caller's to ignore.
TEST_F(Args, StridesOfExtentsOfOne) {
    cases::Case c;
    c.name = "one";
    c.batch = c.query_heads = c.kv_heads = c.query_length = c.kv_length = 1;
    test::Prepared data(c);
    for (hattn_tensor hattn_attention_args::*tensor :
         {&hattn_attention_args::q, &hattn_attention_args::k, &hattn_attention_args::v, &hattn_attention_args::out}) {
        std::fill_n((data.problem.args.*tensor).stride, 3, std::numeric_limits<int64_t>::min());
    }
    for (const hattn_algorithm algorithm :
         {HATTN_ALGORITHM_NAIVE, HATTN_ALGORITHM_FLASH, HATTN_ALGORITHM_SPLIT_KV, HATTN_ALGORITHM_UNFUSED}) {
        test::Outcome outcome = test::run(context_.get(), data.problem, algorithm);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        EXPECT_EQ(cases::difference(data.problem, data.expected), "") << algorithm;
    }
}

TEST_F(Args, NullPointers) {
    test::PlanPtr plan = test::make_plan(context_.get(), problem_.desc);
    EXPECT_EQ(refused(hattn_plan_execute(nullptr, &problem_.args), {HATTN_INVALID_ARGUMENT, {"plan"}}), "");
    EXPECT_EQ(refused(hattn_plan_execute(plan.get(), nullptr), {HATTN_INVALID_ARGUMENT, {"args"}}), "");
}

TEST_F(Args, Workspace) {
    test::PlanPtr plan = test::make_plan(context_.get(), problem_.desc);
    size_t bytes = 0;
    ASSERT_EQ(hattn_plan_workspace_size(plan.get(), &bytes), HATTN_OK);
    ASSERT_GT(bytes, 0u);
    test::Workspace workspace(bytes + 1);
    hattn_attention_args args = problem_.args;
    std::string needed = std::to_string(bytes), less = std::to_string(bytes - 1);
    args.workspace = nullptr;
    args.workspace_size = bytes;
    EXPECT_EQ(refused(hattn_plan_execute(plan.get(), &args), {HATTN_INVALID_ARGUMENT, {"workspace"}}), "");
    args.workspace = static_cast<char *>(workspace.data()) + 1;
    EXPECT_EQ(refused(hattn_plan_execute(plan.get(), &args), {HATTN_INVALID_ARGUMENT, {"workspace", "64"}}), "");
    args.workspace = workspace.data();
    args.workspace_size = bytes - 1;
    EXPECT_EQ(
        refused(hattn_plan_execute(plan.get(), &args), {HATTN_WORKSPACE_TOO_SMALL, {"workspace_size", less, needed}}),
        "");
    args.workspace_size = 0;
    EXPECT_EQ(
        refused(hattn_plan_execute(plan.get(), &args), {HATTN_WORKSPACE_TOO_SMALL, {"workspace_size", "0", needed}}),
        "");
    args.workspace_size = bytes;
    args.out.data = workspace.data();
    EXPECT_EQ(refused(hattn_plan_execute(plan.get(), &args), {HATTN_INVALID_ARGUMENT, {"workspace", "out"}}), "");
}

// What the plan was not made for must not be given.
TEST_F(Args, GivenAlthoughThePlanHasNone) {
    const std::pair<const char *, std::function<void(hattn_attention_desc &)>> kWithout[] = {
        {"bias", [](hattn_attention_desc &desc) { desc.has_bias = 0; }},
        {"mask", [](hattn_attention_desc &desc) { desc.has_mask = 0; }},
        {"alibi_slopes", [](hattn_attention_desc &desc) { desc.has_alibi = 0; }},
        {"sinks", [](hattn_attention_desc &desc) { desc.has_sinks = 0; }},
        {"scores", [](hattn_attention_desc &desc) { desc.scores = HATTN_SCORES_NONE; }},
    };
    for (const auto &[argument, change] : kWithout) {
        hattn_attention_desc desc = problem_.desc;
        change(desc);
        test::PlanPtr plan = test::make_plan(context_.get(), desc);
        EXPECT_EQ(test::mismatch(test::execute(plan.get(), problem_.args), {HATTN_INVALID_ARGUMENT, {argument}}), "");
        EXPECT_EQ(refused(hattn_attention(context_.get(), &desc, &problem_.args), {HATTN_INVALID_ARGUMENT, {argument}}),
                  "");
    }
}

TEST_F(Args, MemoryRunsOut) {
    hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
    desc.allocate = [](void *, size_t, size_t) -> void * { return nullptr; };
    desc.deallocate = [](void *, void *) {};
    test::NewContext created = test::new_context("", &desc);
    test::Outcome outcome = created.outcome;
    if (outcome.ok()) {
        outcome = test::outcome_of(hattn_attention(created.context.get(), &problem_.desc, &problem_.args));
    }
    EXPECT_EQ(outcome.status, HATTN_OUT_OF_MEMORY) << outcome.text();
    EXPECT_NE(outcome.message, "");
    EXPECT_TRUE(problem_.outputs_untouched());
}

// As malloc() does for kernels' vectors.
TEST_F(Args, MemoryIsNotAligned) {
    hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
    desc.allocate = [](void *, size_t bytes, size_t alignment) -> void * {
        return static_cast<char *>(std::aligned_alloc(alignment, bytes + alignment)) + 8;
    };
    desc.deallocate = [](void *, void *memory) { std::free(static_cast<char *>(memory) - 8); };
    test::NewContext created = test::new_context("", &desc);
    test::Outcome outcome = created.outcome;
    if (outcome.ok()) {
        outcome = test::outcome_of(hattn_attention(created.context.get(), &problem_.desc, &problem_.args));
    }
    EXPECT_EQ(test::mismatch(outcome, {HATTN_INVALID_ARGUMENT, {"allocate", "aligned to 64"}}), "");
    EXPECT_TRUE(problem_.outputs_untouched());
}

TEST_F(Args, AFailureLeavesThePlanUsable) {
    cases::Expected expected = cases::evaluate(problem_.desc, problem_.args);
    test::PlanPtr plan = test::make_plan(context_.get(), problem_.desc);
    hattn_attention_args wrong = problem_.args;
    wrong.k.extent[3] = 16;
    EXPECT_EQ(test::execute(plan.get(), wrong).status, HATTN_INVALID_ARGUMENT);
    test::Outcome outcome = test::execute(plan.get(), problem_.args);
    ASSERT_TRUE(outcome.ok()) << outcome.text();
    EXPECT_EQ(cases::difference(problem_, expected), "");
}

TEST_F(Args, ShorterThanThePlanIsFine) {
    test::Prepared data(test::complete_case());
    hattn_attention_desc larger = data.problem.desc;
    larger.query_length = 50;
    larger.kv_length = 900;
    for (hattn_algorithm algorithm : test::kAlgorithms) {
        larger.algorithm = algorithm;
        data.problem.fill_outputs();
        test::PlanPtr plan = test::make_plan(context_.get(), larger);
        test::Outcome outcome = test::execute(plan.get(), data.problem.args);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        EXPECT_EQ(cases::difference(data.problem, data.expected), "") << test::algorithm_name(algorithm);
    }
}

}  // namespace
