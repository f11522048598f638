// HATTN_FORCE=kernel=NAME with kernels of devices: plans take exactly that one, or say why they cannot. CUDA kernels
// run on the emulator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "support/devices.h"
#include "support/json_text.h"
#include "support/refusal.h"
#include "support/stored_types.h"
#include "support/typed_run.h"

namespace {

using namespace hattn;
using nlohmann::json;

// The emulated GPU has room for all kernels, as those of capability 9.0.
const int kRoom = setenv("HATTN_STUB_CUDA_SHARED", "232448", 0) + setenv("HATTN_STUB_CUDA_CAPABILITY", "90", 0);

constexpr cases::StoredTypes kFloat32 = {"float32", HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32};
constexpr cases::StoredTypes kFloat16 = test::kStoredTypes[0];

cases::Case some_case(int64_t head = 32) {
    cases::Case c;
    c.name = "forced";
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = 5;
    c.kv_length = 90;
    c.key_dim = c.value_dim = head;
    c.causal = true;
    return c;
}

// With what kernels of some hooks compute.
cases::Case with_hooks(cases::Case c, const json &hooks) {
    for (const std::string hook : hooks) {
        c.softcap = hook == "softcap" ? 1.5f : c.softcap;
        c.alibi = hook == "alibi" || c.alibi;
        c.bias = hook == "bias" ? cases::varying("hqk") : c.bias;
        c.mask = hook == "mask" ? cases::varying("qk") : c.mask;
    }
    return c;
}

// Of what a kernel multiplies.
const cases::StoredTypes &types_for(const json &kernel) {
    const auto found = std::find_if(std::begin(test::kStoredTypes), std::end(test::kStoredTypes),
                                    [&](const auto &types) { return kernel.at("matrix_type") == types.name; });
    return found == std::end(test::kStoredTypes) ? kFloat32 : *found;
}

bool computes_attention(const json &kernel) {
    const std::string kind = kernel.at("algorithm");
    return kind == "naive" || kind == "flash" || kind == "split_kv" || kind.starts_with("unfused");
}

class DeviceForce : public testing::TestWithParam<std::string> {
protected:
    // The device's kernels that a condition holds for.
    template<typename Condition>
    json kernels(Condition condition) const {
        json found = json::array();
        const json info = test::info_of(test::device_context());
        for (const json &device : info.at("devices")) {
            for (const json &kernel : device.at("kernels")) {
                if (device.at("name") == GetParam() && condition(kernel)) {
                    found.push_back(kernel);
                }
            }
        }
        return found;
    }

    hattn_attention_desc desc_of(const cases::Case &c, const cases::StoredTypes &types = kFloat32) const {
        hattn_attention_desc desc = cases::TypedProblem(c, types).desc;
        desc.device = test::device_of(GetParam());
        return desc;
    }

    // What a plan says with a forced kernel.
    static test::Outcome plan_with(const json &kernel, const hattn_attention_desc &desc) {
        const test::ContextPtr context = test::make_context(1, "kernel=" + kernel.at("name").get<std::string>());
        hattn_plan *plan = nullptr;
        const test::Outcome outcome = test::outcome_of(hattn_plan_create(context.get(), &desc, &plan), context.get());
        EXPECT_EQ(plan != nullptr, outcome.ok());
        hattn_plan_destroy(plan);
        return outcome;
    }
};

TEST_P(DeviceForce, PlansTakeTheKernel) {
    int plans = 0;
    for (const json &kernel : kernels(computes_attention)) {
        const std::string name = kernel.at("name"), kind = kernel.at("algorithm");
        const int64_t head = kernel.at("tile").at("head");
        hattn_attention_desc desc =
            desc_of(with_hooks(some_case(head > 0 ? head : 50), kernel.at("hooks")), types_for(kernel));
        desc.algorithm = HATTN_ALGORITHM_FLASH;  // whatever is asked for
        const test::ContextPtr context = test::make_context(1, "kernel=" + name);
        const json plan = test::explanation_of(test::make_plan(context.get(), desc).get());
        EXPECT_EQ(plan.at(kind == "unfused_values" ? "values_kernel" : "kernel"), name);
        EXPECT_EQ(plan.at("algorithm"), kind.substr(0, kind.starts_with("unfused") ? 7 : kind.size()));
        EXPECT_EQ(plan.at("decided_by"), "rule");
        EXPECT_TRUE(plan.at("why").get<std::string>().starts_with("HATTN_FORCE=kernel=" + name)) << plan.at("why");
        ++plans;
    }
    EXPECT_GT(plans, 10);
}

// Kernels that the rule would not take: with room for larger heads, of more hooks, over 16 bits without tensor cores.
TEST_P(DeviceForce, ResultsAreRight) {
    for (const char *kind : {"flash", "split_kv", "unfused_values"}) {
        const json found = kernels([&](const json &kernel) {
            const json &head = kernel.at("tile").at("head");
            return kernel.at("algorithm") == kind && kernel.at("matrix_type").is_null() && (head == 64 || head == 0);
        });
        ASSERT_FALSE(found.empty());
        for (const json &kernel : {found.front(), found.back()}) {
            for (const int64_t dim : {29, 40}) {
                const test::ContextPtr context =
                    test::make_context(1, "kernel=" + kernel.at("name").get<std::string>());
                cases::TypedProblem problem(with_hooks(some_case(dim), kernel.at("hooks")), kFloat16);
                problem.desc.device = test::device_of(GetParam());
                test::expect_oracle(context.get(), problem, HATTN_FLOAT32);
            }
        }
    }
}

TEST_P(DeviceForce, HeadsThatDoNotFitAreRefused) {
    const json kernel = kernels([](const json &row) { return row.at("tile").at("head") == 64; }).front();
    const std::string name = kernel.at("name");
    EXPECT_EQ(plan_with(kernel, desc_of(some_case(64), types_for(kernel))).message, "");
    EXPECT_EQ(test::mismatch(plan_with(kernel, desc_of(some_case(65), types_for(kernel))),
                             {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", name, "64", "65", "key_dim"}}),
              "");
}

TEST_P(DeviceForce, HooksItDoesNotComputeAreRefused) {
    const auto is_flash = [](const json &row) {
        return row.at("algorithm") == "flash" && row.at("matrix_type").is_null();
    };
    const json plain = kernels([&](const json &row) { return is_flash(row) && row.at("hooks").empty(); }).front();
    const json capped =
        kernels([&](const json &row) { return is_flash(row) && row.at("hooks") == json{"softcap"}; }).front();
    cases::Case c = some_case();
    c.mask = cases::varying("qk");
    EXPECT_EQ(test::mismatch(plan_with(plain, desc_of(c)),
                             {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", plain.at("name"), "none", "mask"}}),
              "");
    // Softcapping has no operand that changes nothing.
    EXPECT_EQ(test::mismatch(plan_with(capped, desc_of(some_case())),
                             {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", capped.at("name"), "softcap", "none"}}),
              "");
}

TEST_P(DeviceForce, TypesItDoesNotMultiplyAreRefused) {
    for (const json &kernel : kernels([](const json &row) { return row.at("matrix_type").is_string(); })) {
        const std::string type = kernel.at("matrix_type");
        const hattn_attention_desc desc = desc_of(with_hooks(some_case(), kernel.at("hooks")));
        EXPECT_EQ(test::mismatch(plan_with(kernel, desc),
                                 {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", kernel.at("name"), type, "float32"}}),
                  "");
    }
}

// Tiles of two rows of split_kv on CUDA have code for keys and values that are not quantised alone.
TEST_P(DeviceForce, QuantisedKeysItDoesNotTakeAreRefused) {
    const auto int8 = std::find_if(std::begin(test::kStoredTypes), std::end(test::kStoredTypes),
                                   [](const auto &types) { return std::string_view(types.name) == "int8_of_keys"; });
    ASSERT_NE(int8, std::end(test::kStoredTypes));
    const auto has_rows = [](int rows) {
        return [=](const json &row) { return row.at("algorithm") == "split_kv" && row.at("tile").at("rows") == rows; };
    };
    for (const json &kernel : kernels(has_rows(2))) {
        const hattn_attention_desc desc = desc_of(with_hooks(some_case(), kernel.at("hooks")), *int8);
        EXPECT_EQ(test::mismatch(plan_with(kernel, desc),
                                 {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", kernel.at("name"), "not quantised", "int8"}}),
                  "");
    }
    for (const json &kernel : kernels(has_rows(8))) {
        const hattn_attention_desc desc = desc_of(with_hooks(some_case(), kernel.at("hooks")), *int8);
        EXPECT_EQ(plan_with(kernel, desc).message, "");
    }
}

TEST_P(DeviceForce, KindsThatComputeNoAttentionAreRefused) {
    int refused = 0;
    for (const json &kernel : kernels([](const json &row) { return !computes_attention(row); })) {
        const std::string name = kernel.at("name"), kind = kernel.at("algorithm");
        EXPECT_EQ(test::mismatch(test::new_context("kernel=" + name).outcome,
                                 {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", name, kind, "attention"}}),
                  "");
        ++refused;
    }
    EXPECT_GT(refused, 4);
}

TEST_P(DeviceForce, ProblemsOnOtherDevicesAreRefused) {
    const json kernel = kernels([](const json &row) { return row.at("tile").at("head") == 32; }).front();
    hattn_attention_desc desc = desc_of(some_case());
    desc.device = HATTN_CPU;
    EXPECT_EQ(test::mismatch(plan_with(kernel, desc),
                             {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", kernel.at("name"), GetParam(), "cpu"}}),
              "");
    for (const std::string &other : test::usable_devices()) {
        if (other != GetParam()) {
            desc.device = test::device_of(other);
            EXPECT_EQ(test::mismatch(plan_with(kernel, desc),
                                     {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", kernel.at("name"), GetParam(), other}}),
                      "");
        }
    }
    const json of_cpu = test::info_of(test::device_context()).at("kernels").front();
    EXPECT_EQ(test::mismatch(plan_with(of_cpu, desc_of(some_case())),
                             {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", of_cpu.at("name"), "cpu", GetParam()}}),
              "");
}

TEST_P(DeviceForce, ContradictionsAreRefused) {
    const json kernel = kernels([](const json &row) { return row.at("algorithm") == "flash"; }).front();
    const std::string name = kernel.at("name");
    EXPECT_EQ(test::mismatch(test::new_context("kernel=" + name + ",algorithm=naive").outcome,
                             {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", name, "flash", "naive"}}),
              "");
    EXPECT_EQ(test::mismatch(test::new_context("target=generic,kernel=" + name).outcome,
                             {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", name, GetParam(), "generic"}}),
              "");
    EXPECT_TRUE(test::new_context("kernel=" + name + ",algorithm=flash").outcome.ok());
}

INSTANTIATE_TEST_SUITE_P(On, DeviceForce, testing::ValuesIn(test::usable_devices()),
                         [](const auto &run) { return run.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceForce);

TEST(DeviceForceNames, UnknownOnesAreRefused) {
    EXPECT_EQ(test::mismatch(test::new_context("kernel=flash_cuda_r3k5s7t9h11").outcome,
                             {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", "flash_cuda_r3k5s7t9h11"}}),
              "");
}

}  // namespace
