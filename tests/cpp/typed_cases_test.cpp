// Every small case in every storage type against the oracle; large cases, and all on `generic`, in one. Algorithms take
// turns, so that a case meets each of them with some of the types.
#include <gtest/gtest.h>

#include <iterator>
#include <ostream>
#include <tuple>

#include "case_list.h"
#include "compare.h"
#include "support/run.h"
#include "support/stored_types.h"
#include "support/targets.h"
#include "support/typed_run.h"
#include "typed_problem.h"

namespace {

using namespace hattn;
using test::kStoredTypes;

// Large cases meet one set of types, and so do all on a target that only stands in for missing instructions.
constexpr size_t kFew = 1;

using Param = std::tuple<const cases::Case *, std::string>;

class TypedCase : public testing::TestWithParam<Param> {};

TEST_P(TypedCase, MatchesOracle) {
    const auto &[spec, target] = GetParam();
    const test::TargetContext &implementation = test::context_for(target);
    if (!implementation.context) {
        GTEST_SKIP() << target << ": " << implementation.why_not;
    }
    constexpr size_t kCount = std::size(kStoredTypes);
    const bool few = spec->work() > cases::kSmallWork || target == "generic";
    for (size_t i = 0; i < (few ? kFew : kCount); ++i) {
        const cases::StoredTypes &types = kStoredTypes[(spec->seed() + i) % kCount];
        const hattn_algorithm algorithm = test::kAlgorithms[(spec->seed() / kCount + i) % std::size(test::kAlgorithms)];
        SCOPED_TRACE(std::string(types.name) + ", " + test::algorithm_name(algorithm) + "\n" + cases::describe(*spec));
        cases::TypedProblem problem(*spec, types);
        problem.desc.algorithm = algorithm;
        test::expect_oracle(implementation.context.get(), problem, test::weight_type_on(target, types),
                            test::integer_products(target, types));
    }
}

std::vector<const cases::Case *> case_params() {
    std::vector<const cases::Case *> params;
    for (const cases::Case &c : cases::all_cases()) {
        params.push_back(&c);
    }
    return params;
}

INSTANTIATE_TEST_SUITE_P(All, TypedCase,
                         testing::Combine(testing::ValuesIn(case_params()), testing::ValuesIn(test::target_names())),
                         [](const testing::TestParamInfo<Param> &run) {
                             return std::get<0>(run.param)->name + "__" + test::as_test_name(std::get<1>(run.param));
                         });

}  // namespace
