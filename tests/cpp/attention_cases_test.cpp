// Every case on every algorithm and target, against the oracle; and no execute allocates.
#include <gtest/gtest.h>

#include <memory>
#include <tuple>

#include "support/case_param.h"
#include "support/run.h"
#include "support/targets.h"

namespace {

using namespace hattn;

using test::CaseParam;
using Param = std::tuple<CaseParam, std::string, hattn_algorithm>;

// Tests of one case follow each other, so its data and oracle are kept until the next case comes.
test::Prepared &prepared(const cases::Case &c) {
    static std::unique_ptr<test::Prepared> current;
    if (!current || current->problem.spec.name != c.name) {
        current = std::make_unique<test::Prepared>(c);
    }
    return *current;
}

class AttentionCase : public testing::TestWithParam<Param> {};

TEST_P(AttentionCase, MatchesOracle) {
    const auto &[param, target, algorithm] = GetParam();
    const test::TargetContext &implementation = test::context_for(target);
    if (!implementation.context) {
        GTEST_SKIP() << target << ": " << implementation.why_not;
    }
    test::Prepared &data = prepared(*param.spec);
    test::Outcome outcome = test::run(implementation.context.get(), data.problem, algorithm);
    ASSERT_TRUE(outcome.ok()) << outcome.text() << '\n' << cases::describe(*param.spec);
    EXPECT_EQ(cases::difference(data.problem, data.expected), "") << cases::describe(*param.spec);
    EXPECT_EQ(outcome.allocations, 0u) << cases::describe(*param.spec);
}

std::string name_of(const testing::TestParamInfo<Param> &run) {
    const auto &[param, target, algorithm] = run.param;
    return param.spec->name + "__" + test::as_test_name(target) + "__" + test::algorithm_name(algorithm);
}

INSTANTIATE_TEST_SUITE_P(
    All, AttentionCase,
    testing::Combine(testing::ValuesIn(test::case_params([](const cases::Case &) { return true; })),
                     testing::ValuesIn(test::target_names()), testing::ValuesIn(test::kAlgorithms)),
    name_of);

}  // namespace
