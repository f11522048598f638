// Storage types on every device that this machine has, against the oracle. A driver compiles kernels for each
// combination of types, in seconds, so there are few, and algorithms take turns; emulated_types_test has all of them.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "support/devices.h"
#include "support/stored_types.h"
#include "support/typed_run.h"

namespace {

using namespace hattn;

struct Run {
    const char *name;
    size_t types;  // of test::kStoredTypes
    hattn_algorithm algorithm;
    hattn_scores scores = HATTN_SCORES_NONE;
};

constexpr Run kRuns[] = {
    {"float16", 0, HATTN_ALGORITHM_FLASH},
    {"bfloat16", 1, HATTN_ALGORITHM_SPLIT_KV},
    {"int8_of_channels", 2, HATTN_ALGORITHM_FLASH},
    {"int4_of_keys", 3, HATTN_ALGORITHM_SPLIT_KV},
    {"int4_and_int8", 4, HATTN_ALGORITHM_FLASH},
    {"naive_int4_of_keys", 3, HATTN_ALGORITHM_NAIVE},
    {"unfused_int4_and_int8", 4, HATTN_ALGORITHM_UNFUSED},
    {"scores_of_bfloat16", 1, HATTN_ALGORITHM_SPLIT_KV, HATTN_SCORES_RAW},
    {"probabilities_of_int8", 2, HATTN_ALGORITHM_FLASH, HATTN_SCORES_PROBABILITIES},
};

void PrintTo(const Run &run, std::ostream *stream) {
    *stream << run.name;
}

using Param = std::tuple<std::string, Run>;

class DeviceTypes : public testing::TestWithParam<Param> {};

// Lengths, rows that share keys, heads that are padded, a batch; more keys than a split has.
cases::Case problem_for(hattn_algorithm algorithm, hattn_scores scores = HATTN_SCORES_NONE) {
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
    c.scores = scores;
    return c;
}

TEST_P(DeviceTypes, MatchOracle) {
    const auto &[device, run] = GetParam();
    cases::TypedProblem problem(problem_for(run.algorithm, run.scores), test::kStoredTypes[run.types]);
    problem.desc.device = test::device_of(device);
    problem.desc.algorithm = run.algorithm;
    test::expect_oracle(test::device_context(), problem, HATTN_FLOAT32);
}

std::string name_of(const testing::TestParamInfo<Param> &run) {
    return std::get<0>(run.param) + "__" + std::get<1>(run.param).name;
}

INSTANTIATE_TEST_SUITE_P(All, DeviceTypes,
                         testing::Combine(testing::ValuesIn(test::usable_devices()), testing::ValuesIn(kRuns)),
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
            EXPECT_EQ(hattn_plan_create(test::device_context(), &problem.desc, &plan), HATTN_NOT_SUPPORTED)
                << types.name;
            EXPECT_EQ(plan, nullptr) << types.name;
            const std::string message = hattn_last_error(test::device_context());
            EXPECT_NE(message.find(device), std::string::npos) << message;
        }
    }
}

// Builds without devices.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceTypes);

}  // namespace
