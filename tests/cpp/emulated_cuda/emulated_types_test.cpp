// Storage types of CUDA kernels on the emulator, against the oracle: small cases, each in one combination of types and
// with one of the algorithms.
#include <gtest/gtest.h>

#include <iterator>

#include "support/case_param.h"
#include "support/devices.h"
#include "support/stored_types.h"
#include "support/typed_run.h"

namespace {

using namespace hattn;

std::vector<test::CaseParam> small_cases() {
    constexpr double kSmall = cases::kSmallWork / 4;  // takes milliseconds
    if (!test::has_cuda_kernels()) {
        return {};
    }
    return test::case_params([](const cases::Case &c) { return test::device_supports(c) && c.work() <= kSmall; });
}

class EmulatedTypes : public testing::TestWithParam<test::CaseParam> {};

TEST_P(EmulatedTypes, MatchOracle) {
    constexpr size_t kCount = std::size(test::kStoredTypes);
    const cases::Case &spec = *GetParam().spec;
    const cases::StoredTypes &types = test::kStoredTypes[spec.seed() % kCount];
    SCOPED_TRACE(std::string(types.name) + "\n" + cases::describe(spec));
    cases::TypedProblem problem(spec, types);
    problem.desc.device = HATTN_CUDA;
    problem.desc.algorithm = test::kDeviceAlgorithms[spec.seed() / kCount % std::size(test::kDeviceAlgorithms)];
    test::expect_oracle(test::device_context(), problem, HATTN_FLOAT32);
}

INSTANTIATE_TEST_SUITE_P(Small, EmulatedTypes, testing::ValuesIn(small_cases()),
                         [](const auto &run) { return run.param.spec->name; });

// Builds without CUDA.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EmulatedTypes);

}  // namespace
