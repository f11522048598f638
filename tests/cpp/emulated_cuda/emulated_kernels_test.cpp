// CUDA kernels on the emulator, which stops at races, at accesses out of bounds and at barriers that not all reach:
// every kernel of the table, and every small case with every algorithm, against the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "support/case_param.h"
#include "support/devices.h"
#include "support/json_text.h"
#include "support/run.h"
#include "support/stored_types.h"
#include "support/typed_run.h"

namespace {

using namespace hattn;

// The emulated GPU has room for all kernels, as those of capability 9.0.
const int kRoom = setenv("HATTN_STUB_CUDA_SHARED", "232448", 0) + setenv("HATTN_STUB_CUDA_CAPABILITY", "90", 0);

constexpr const char *kDevice = "cuda";

void expect_oracle(hattn_context *context, const cases::Case &c, hattn_algorithm algorithm) {
    test::Prepared data(c);
    data.problem.desc.device = HATTN_CUDA;
    test::Outcome outcome = test::run(context, data.problem, algorithm);
    ASSERT_TRUE(outcome.ok()) << outcome.text() << '\n' << cases::describe(c);
    EXPECT_EQ(cases::difference(data.problem, data.expected), "") << cases::describe(c);
}

struct Kernel {
    std::string name, kind;
    int64_t rows, head;  // of its tile
    std::vector<std::string> hooks;
    const cases::StoredTypes *types;  // of tensors
};

void PrintTo(const Kernel &kernel, std::ostream *stream) {
    *stream << kernel.name;
}

// Of a kernel's row: its matrix_type, or null.
const cases::StoredTypes &types_of(const nlohmann::json &matrix_type) {
    static constexpr cases::StoredTypes kFloat32 = {"float32", HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32,
                                                    HATTN_FLOAT32};
    const auto found = std::find_if(std::begin(test::kStoredTypes), std::end(test::kStoredTypes),
                                    [&](const auto &types) { return matrix_type == types.name; });
    return found == std::end(test::kStoredTypes) ? kFloat32 : *found;
}

// All but the merge, which split_kv needs, the values of unfused, which go with its scores, and those that write rows
// of caches, which are device_cache_test's.
std::vector<Kernel> kernels(bool packed) {
    std::vector<Kernel> list;
    const nlohmann::json info = test::info_of(test::device_context());
    for (const nlohmann::json &device : info.at("devices")) {
        for (const nlohmann::json &row : device.at("kernels")) {
            const std::string kind = row.at("algorithm");
            const bool of_others = kind == "merge" || kind == "unfused_values" || kind == "append" ||
                                   kind == "block_scales" || kind == "quantize";
            if (device.at("name") == kDevice && !of_others && row.at("pack").is_string() == packed) {
                list.push_back({row.at("name"), kind, row.at("tile").at("rows"), row.at("tile").at("head"),
                                row.at("hooks"), &types_of(row.at("matrix_type"))});
            }
        }
    }
    return list;
}

// More than a tile of rows, chunks that are not full, lengths. For kernels of score outputs, what the planner gives to
// this very one.
cases::Case problem_for(const Kernel &kernel) {
    const auto has = [&](const char *hook) {
        return std::find(kernel.hooks.begin(), kernel.hooks.end(), hook) != kernel.hooks.end();
    };
    constexpr int64_t kAnyHead = 40;
    const bool flash = kernel.kind == "flash", splits = kernel.kind == "split_kv";
    cases::Case c;
    c.name = kernel.name;
    c.batch = 2;
    c.query_length = flash ? kernel.rows + 6 : splits ? std::min<int64_t>(kernel.rows, 3) : 11;
    c.kv_length = flash ? 90 : splits ? 300 : 530;
    c.key_dim = c.value_dim = kernel.head > 0 ? kernel.head : kAnyHead;
    c.kv_lengths = {static_cast<int32_t>(c.kv_length), 41};
    c.causal = true;
    c.sinks = cases::Sinks::kNormal;
    c.softcap = has("softcap") ? 1.5f : 0.0f;
    c.alibi = has("alibi");
    c.bias = has("bias") ? cases::varying("hqk") : cases::Operand{};
    c.mask = has("mask") ? cases::varying("bqk") : cases::Operand{};
    if (kernel.kind == "probabilities") {
        c.scores = HATTN_SCORES_PROBABILITIES;
    } else if (kernel.kind == "scores") {
        c.scores = has("bias") ? HATTN_SCORES_MASKED : has("softcap") ? HATTN_SCORES_CAPPED : HATTN_SCORES_RAW;
    }
    return c;
}

class EmulatedKernel : public testing::TestWithParam<Kernel> {};

TEST_P(EmulatedKernel, MatchesOracle) {
    const cases::Case c = problem_for(GetParam());
    const cases::StoredTypes &types = *GetParam().types;
    cases::TypedProblem problem(c, types);
    problem.desc.device = HATTN_CUDA;
    const bool attends = c.scores == HATTN_SCORES_NONE;
    const test::ContextPtr context = test::make_context(2, attends ? "kernel=" + GetParam().name : "");
    test::PlanPtr plan = test::make_plan(context.get(), problem.desc);
    const nlohmann::json explanation = test::explanation_of(plan.get());
    ASSERT_EQ(explanation.at(attends ? "kernel" : "score_kernel"), GetParam().name);
    if (types.q == HATTN_FLOAT32) {
        expect_oracle(context.get(), c, HATTN_ALGORITHM_AUTO);
    } else {
        test::expect_oracle(context.get(), problem, HATTN_FLOAT32);
    }
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedKernel, testing::ValuesIn(kernels(false)),
                         [](const auto &parameter) { return parameter.param.name; });
// Those of packs that HATTN_PACKS names.
INSTANTIATE_TEST_SUITE_P(Packed, EmulatedKernel, testing::ValuesIn(kernels(true)),
                         [](const auto &parameter) { return parameter.param.name; });

using CaseAndAlgorithm = std::tuple<test::CaseParam, hattn_algorithm>;

std::vector<test::CaseParam> small_cases() {
    constexpr double kSmall = cases::kSmallWork / 4;  // takes milliseconds
    if (!test::has_cuda_kernels()) {
        return {};
    }
    return test::case_params([](const cases::Case &c) { return test::device_supports(c) && c.work() <= kSmall; });
}

class EmulatedCase : public testing::TestWithParam<CaseAndAlgorithm> {};

TEST_P(EmulatedCase, MatchesOracle) {
    const auto &[param, algorithm] = GetParam();
    expect_oracle(test::device_context(), *param.spec, algorithm);
}

std::string name_of(const testing::TestParamInfo<CaseAndAlgorithm> &run) {
    const auto &[param, algorithm] = run.param;
    return param.spec->name + "__" + test::algorithm_name(algorithm);
}

INSTANTIATE_TEST_SUITE_P(Small, EmulatedCase,
                         testing::Combine(testing::ValuesIn(small_cases()), testing::ValuesIn(test::kDeviceAlgorithms)),
                         name_of);

// More tiles than the emulator's four multiprocessors and no more than two for each, which start in another order.
TEST(EmulatedPairs, MatchOracle) {
    if (!test::has_cuda_kernels()) {
        GTEST_SKIP() << "the build has no kernels for cuda";
    }
    for (const cases::StoredTypes *types : {&types_of(nullptr), &types_of("bfloat16")}) {
        for (const int64_t heads : {1, 2}) {
            for (const float softcap : {0.0f, 2.0f}) {
                cases::Case c;
                c.name = "pairs";
                c.query_heads = heads;
                // Six tiles: of 64 rows, or of 128 with heads of 64 on tensor cores and without hooks.
                const int64_t rows = types->q == HATTN_FLOAT32 || softcap > 0 ? 64 : 128;
                c.query_length = c.kv_length = rows * 6 / heads - 10;
                c.key_dim = c.value_dim = types->q == HATTN_FLOAT32 ? 32 : 64;
                c.causal = true;
                c.softcap = softcap;
                cases::TypedProblem problem(c, *types);
                problem.desc.device = HATTN_CUDA;
                const test::PlanPtr plan = test::make_plan(test::device_context(), problem.desc);
                const nlohmann::json explanation = test::explanation_of(plan.get());
                ASSERT_EQ(explanation.at("algorithm"), "flash");
                ASSERT_EQ(explanation.at("tile").at("rows"), rows);
                test::expect_oracle(test::device_context(), problem, HATTN_FLOAT32);
            }
        }
    }
}

// Builds without CUDA.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EmulatedKernel);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EmulatedCase);

}  // namespace
