// Kernels that multiply bfloat16 pairs or matrices, by name, on every small case whose hooks they compute: those of the
// library that this CPU runs, and the stand-ins of the pack that HATTN_PACKS names.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "case_list.h"
#include "compare.h"
#include "support/json_text.h"
#include "support/run.h"
#include "support/targets.h"
#include "support/typed_run.h"
#include "typed_problem.h"

namespace {

using namespace hattn;

constexpr cases::StoredTypes kBfloat16 = {"bfloat16", HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16};
constexpr cases::StoredTypes kToFloat32 = {"to_float32", HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_FLOAT32};
constexpr cases::StoredTypes kFloat32 = {"float32", HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32};
constexpr cases::StoredTypes kFloat16 = {"float16", HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT32};
constexpr cases::StoredTypes kMixed = {"mixed", HATTN_FLOAT32, HATTN_INT8, HATTN_INT4, HATTN_FLOAT32};
constexpr cases::StoredTypes kHalves = {"halves", HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16};
constexpr cases::StoredTypes kShort = {"short", HATTN_BFLOAT16, HATTN_FLOAT16, HATTN_INT8, HATTN_BFLOAT16};

struct Kernel {
    std::string name, storage;
    std::vector<std::string> hooks;

    bool takes_bfloat16() const {
        return storage.starts_with("bfloat16");
    }
    std::vector<cases::StoredTypes> types() const {
        return takes_bfloat16()               ? std::vector{kToFloat32, kBfloat16}
               : storage == "any_matrices"    ? std::vector{kFloat16, kMixed}
               : storage == "halves_matrices" ? std::vector{kHalves, kShort}
                                              : std::vector{kFloat32};
    }
};

void PrintTo(const Kernel &kernel, std::ostream *stream) {
    *stream << kernel.name;
}

std::vector<Kernel> kernels() {
    std::vector<Kernel> list;
    const nlohmann::json info = test::info_of(test::make_context().get());
    for (const nlohmann::json &row : info.at("kernels")) {
        const std::string storage = row.at("storage");
        // See one_type_kernels_test.
        const bool of_whole_heads = storage == "bfloat16_rows" || storage.starts_with("int");
        if (!of_whole_heads && (storage.starts_with("bfloat16") || storage.ends_with("_matrices")) &&
            row.at("runnable")) {
            list.push_back({row.at("name"), storage, row.at("hooks")});
        }
    }
    return list;
}

// With the hooks of the kernel, or fewer than it has if those it lacks are neutral: all but the softcap.
bool fits(const Kernel &kernel, const cases::Case &c) {
    const std::vector<std::string> hooks = c.hooks();
    const auto has = [](const std::vector<std::string> &list, const std::string &hook) {
        return std::find(list.begin(), list.end(), hook) != list.end();
    };
    const bool contained =
        std::all_of(hooks.begin(), hooks.end(), [&](const std::string &hook) { return has(kernel.hooks, hook); });
    return contained && hooks.empty() == kernel.hooks.empty() &&
           has(hooks, "softcap") == has(kernel.hooks, "softcap") && c.work() <= cases::kSmallWork;
}

class Bfloat16Kernel : public testing::TestWithParam<Kernel> {};

TEST_P(Bfloat16Kernel, MatchesOracle) {
    constexpr size_t kFewest = 14;
    // One thread: further ones allocate when they start.
    test::ContextPtr context = test::make_context(1, "kernel=" + GetParam().name);
    const std::vector<cases::StoredTypes> types = GetParam().types();
    size_t runs = 0;
    for (const cases::Case &c : cases::all_cases()) {
        if (!fits(GetParam(), c)) {
            continue;
        }
        SCOPED_TRACE(cases::describe(c));
        cases::TypedProblem problem(c, types[runs++ % types.size()]);
        // Sums of bfloat16 numbers are as exact as float32.
        const hattn_dtype weights = GetParam().takes_bfloat16() ? HATTN_BFLOAT16 : HATTN_FLOAT32;
        ASSERT_NO_FATAL_FAILURE(test::expect_oracle(context.get(), problem, weights));
    }
    EXPECT_GE(runs, kFewest);
}

TEST_P(Bfloat16Kernel, RefusesOtherTypes) {
    if (GetParam().storage == "any_matrices") {
        GTEST_SKIP() << "it takes all";
    }
    test::ContextPtr context = test::make_context(1, "kernel=" + GetParam().name);
    cases::Case c;
    c.name = "bfloat16_kernel_of_others";
    for (const hattn_dtype q : {HATTN_FLOAT32, HATTN_BFLOAT16}) {
        const cases::TypedProblem problem(c, {"mixed", q, HATTN_BFLOAT16, HATTN_FLOAT16, HATTN_FLOAT32});
        hattn_plan *plan = nullptr;
        EXPECT_EQ(hattn_plan_create(context.get(), &problem.desc, &plan), HATTN_INVALID_ARGUMENT);
        const char *taken = GetParam().takes_bfloat16()               ? "takes bfloat16"
                            : GetParam().storage == "halves_matrices" ? "takes queries, keys and outputs of 16 bits"
                                                                      : "takes float32";
        EXPECT_NE(std::string(hattn_last_error(context.get())).find(taken), std::string::npos);
    }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Bfloat16Kernel);
INSTANTIATE_TEST_SUITE_P(Of, Bfloat16Kernel, testing::ValuesIn(kernels()),
                         [](const testing::TestParamInfo<Kernel> &kernel) {
                             return test::as_test_name(kernel.param.name);
                         });

}  // namespace
