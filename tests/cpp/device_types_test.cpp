// Storage types on every device that this machine has, against the oracle. A driver compiles kernels for each
// combination of types, in seconds, so there are few, and algorithms take turns; emulated_types_test has all of them.
#include <gtest/gtest.h>

#include <tuple>

#include "support/devices.h"
#include "support/stored_types.h"
#include "support/typed_run.h"

namespace {

using namespace hattn;

using Param = std::tuple<std::string, size_t>;

class DeviceTypes : public testing::TestWithParam<Param> {};

// Lengths, rows that share keys, heads that are padded, a batch; more keys than a split has.
cases::Case problem_for(hattn_algorithm algorithm) {
    cases::Case c;
    c.name = "device_types";
    c.batch = 2;
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = algorithm == HATTN_ALGORITHM_FLASH ? 40 : 3;
    c.kv_length = 600;
    c.key_dim = 29;
    c.value_dim = 27;
    c.kv_lengths = {600, 41};
    c.causal = true;
    return c;
}

TEST_P(DeviceTypes, MatchOracle) {
    const auto &[device, types] = GetParam();
    const hattn_algorithm algorithm = types % 2 == 0 ? HATTN_ALGORITHM_FLASH : HATTN_ALGORITHM_SPLIT_KV;
    cases::TypedProblem problem(problem_for(algorithm), test::kStoredTypes[types]);
    problem.desc.device = test::device_of(device);
    problem.desc.algorithm = algorithm;
    test::expect_oracle(test::device_context(), problem, HATTN_FLOAT32);
}

std::string name_of(const testing::TestParamInfo<Param> &run) {
    return std::get<0>(run.param) + "__" + test::kStoredTypes[std::get<1>(run.param)].name;
}

INSTANTIATE_TEST_SUITE_P(All, DeviceTypes,
                         testing::Combine(testing::ValuesIn(test::usable_devices()),
                                          testing::Range<size_t>(0, test::kFirstTypes)),
                         name_of);

TEST(DeviceThatIsNotThere, TakesNoType) {
    for (const char *device : {"opencl", "cuda"}) {
        if (test::device_unusable(device).empty()) {
            continue;
        }
        for (const cases::StoredTypes &types : test::kStoredTypes) {
            cases::TypedProblem problem(problem_for(HATTN_ALGORITHM_FLASH), types);
            problem.desc.device = test::device_of(device);
            hattn_plan *plan = nullptr;
            EXPECT_EQ(hattn_plan_create(test::device_context(), &problem.desc, &plan), HATTN_NOT_SUPPORTED) << types.name;
            EXPECT_EQ(plan, nullptr) << types.name;
            const std::string message = hattn_last_error(test::device_context());
            EXPECT_NE(message.find(device), std::string::npos) << message;
        }
    }
}

// Builds without devices.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceTypes);

}  // namespace
