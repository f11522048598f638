// Every case on the algorithms of every device that this machine has, against the oracle.
#include <gtest/gtest.h>

#include <memory>
#include <tuple>

#include "support/case_param.h"
#include "support/devices.h"
#include "support/run.h"
#include "support/targets.h"

namespace {

using namespace hattn;

using test::CaseParam;
using Param = std::tuple<CaseParam, std::string, hattn_algorithm>;

class DeviceCase : public testing::TestWithParam<Param> {};

TEST_P(DeviceCase, MatchesOracle) {
    const auto &[param, device, algorithm] = GetParam();
    test::Prepared data(*param.spec);
    data.problem.desc.device = test::device_of(device);
    test::Outcome outcome = test::run(test::device_context(), data.problem, algorithm);
    ASSERT_TRUE(outcome.ok()) << outcome.text() << '\n' << cases::describe(*param.spec);
    EXPECT_EQ(cases::difference(data.problem, data.expected), "") << cases::describe(*param.spec);
}

std::string name_of(const testing::TestParamInfo<Param> &run) {
    const auto &[param, device, algorithm] = run.param;
    return param.spec->name + "__" + device + "__" + test::algorithm_name(algorithm);
}

// One skip for each that the build has kernels for and the machine lacks.
class EveryDevice : public testing::TestWithParam<std::string> {};

TEST_P(EveryDevice, IsThere) {
    if (const std::string why_not = test::device_unusable(GetParam()); !why_not.empty()) {
        GTEST_SKIP() << GetParam() << ": " << why_not;
    }
}

INSTANTIATE_TEST_SUITE_P(All, EveryDevice, testing::ValuesIn(test::device_names()));
INSTANTIATE_TEST_SUITE_P(All, DeviceCase,
                         testing::Combine(testing::ValuesIn(test::case_params(test::device_supports)),
                                          testing::ValuesIn(test::usable_devices()),
                                          testing::ValuesIn(test::kDeviceAlgorithms)),
                         name_of);

TEST(DeviceThatIsNotThere, IsNotSupported) {
    cases::Case c;
    c.name = "no_device";
    for (const char *device : {"opencl", "cuda"}) {
        if (!test::device_unusable(device).empty()) {
            cases::Problem problem(c);
            problem.desc.device = test::device_of(device);
            test::Outcome outcome = test::run(test::device_context(), problem);
            EXPECT_EQ(outcome.status, HATTN_NOT_SUPPORTED) << device;
            EXPECT_NE(outcome.message.find(device), std::string::npos) << outcome.message;
            EXPECT_TRUE(problem.outputs_untouched()) << device;
        }
    }
}

// Builds without devices.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceCase);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryDevice);

}  // namespace
