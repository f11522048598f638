// Every kernel of the table by name, whatever the planner would choose: on cases that need exactly its hooks, and on
// cases that lack some, which then get neutral operands. Those for any storage also in other types than the cases'.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <ostream>
#include <set>

#include "case_list.h"
#include "runtime/cpu_features.h"
#include "support/json_text.h"
#include "support/run.h"
#include "support/stored_types.h"
#include "support/targets.h"
#include "support/typed_run.h"

namespace {

using namespace hattn;

struct Kernel {
    std::string name;
    std::string target;
    std::string algorithm;
    std::vector<std::string> hooks;
    bool any_storage = false;
    std::string needs;  // features of the CPU beside the target's
    bool runnable = false;
};

void PrintTo(const Kernel &kernel, std::ostream *stream) {
    *stream << kernel.name;
}

std::vector<Kernel> kernels() {
    std::vector<Kernel> list;
    test::ContextPtr context = test::make_context();
    const nlohmann::json info = test::info_of(context.get());
    // Conversions are not chosen by name, and neither are score outputs of other types than the cases'. Kernels for
    // some types alone have tests of their own, bfloat16_kernels_test and one_type_kernels_test.
    const std::set<std::string> conversions = {"widen", "narrow", "block_scales", "quantize"};
    const std::set<std::string> score_outputs = {"scores", "probabilities"};
    for (const nlohmann::json &row : info.at("kernels")) {
        const std::string algorithm = row.at("algorithm"), storage = row.at("storage");
        const bool of_some_types = storage.starts_with("bfloat16") || storage.starts_with("all_") ||
                                   storage.starts_with("int") || storage == "halves_matrices";
        if (conversions.contains(algorithm) || of_some_types ||
            (storage == "any" && score_outputs.contains(algorithm))) {
            continue;
        }
        list.push_back({row.at("name"), row.at("target"), row.at("algorithm"), row.at("hooks"), storage == "any",
                        row.at("needs"), row.at("runnable")});
    }
    return list;
}

// Kernels of one combination of hooks share their cases.
test::Prepared &prepared(const cases::Case &c) {
    static std::map<std::string, std::unique_ptr<test::Prepared>> all;
    std::unique_ptr<test::Prepared> &entry = all[c.name];
    if (!entry) {
        entry = std::make_unique<test::Prepared>(c);
    }
    return *entry;
}

// What a softcap kernel computes without a softcap is not defined: no operand leaves scores as they are.
bool lacks_neutral_hooks(const std::vector<std::string> &hooks, const std::vector<std::string> &kernel_hooks) {
    const auto among = [](const std::vector<std::string> &list, const std::string &hook) {
        return std::find(list.begin(), list.end(), hook) != list.end();
    };
    return hooks != kernel_hooks && among(hooks, "softcap") == among(kernel_hooks, "softcap") &&
           std::all_of(hooks.begin(), hooks.end(), [&](const std::string &hook) { return among(kernel_hooks, hook); });
}

// Whether an execute of the case can be computed by this very kernel, given that its target and algorithm are forced.
bool fits(const Kernel &kernel, const cases::Case &c, bool exactly) {
    if (kernel.algorithm == "merge") {
        constexpr int64_t kMoreThanOneSplit = 600;
        return exactly && c.hooks().empty() && c.kv_length > kMoreThanOneSplit;
    }
    if (kernel.algorithm == "unfused_values") {
        // These know but whether keys can be hidden.
        std::vector<std::string> hooks = c.hooks();
        const auto hides = [](const std::string &hook) { return hook == "bias" || hook == "mask"; };
        return exactly && std::any_of(hooks.begin(), hooks.end(), hides) == !kernel.hooks.empty() && c.work() > 0.0 &&
               c.work() <= cases::kSmallWork;
    }
    bool scores_fit = (kernel.algorithm != "scores" || c.scores == HATTN_SCORES_MASKED) &&
                      (kernel.algorithm != "probabilities" || c.scores == HATTN_SCORES_PROBABILITIES);
    bool hooks_fit = exactly ? c.hooks() == kernel.hooks : lacks_neutral_hooks(c.hooks(), kernel.hooks);
    return scores_fit && hooks_fit && c.work() > 0.0 && c.work() <= cases::kSmallWork;
}

// Up to `count` cases spread evenly over those that fit.
std::vector<const cases::Case *> fitting_cases(const Kernel &kernel, size_t count, bool exactly) {
    std::vector<const cases::Case *> fitting, chosen;
    for (const cases::Case &c : cases::all_cases()) {
        if (fits(kernel, c, exactly)) {
            fitting.push_back(&c);
        }
    }
    for (size_t i = 0; i < std::min(count, fitting.size()); ++i) {
        chosen.push_back(fitting[i * fitting.size() / std::min(count, fitting.size())]);
    }
    return chosen;
}

class KernelByName : public testing::TestWithParam<Kernel> {};

TEST_P(KernelByName, MatchesOracle) {
    constexpr size_t kCases = 20, kCasesWithLess = 6;
    const Kernel &kernel = GetParam();
    if (!kernel.runnable) {
        GTEST_SKIP() << kernel.target << " does not run on this machine";
    }
    test::ContextPtr context = test::make_context(2, "kernel=" + kernel.name);
    std::vector<const cases::Case *> list = fitting_cases(kernel, kCases, true);
    ASSERT_FALSE(list.empty());
    // Score kernels are not forced by name: a problem that lacks hooks gets another.
    if (kernel.algorithm != "scores" && kernel.algorithm != "probabilities") {
        const std::vector<const cases::Case *> less = fitting_cases(kernel, kCasesWithLess, false);
        list.insert(list.end(), less.begin(), less.end());
    }
    hattn_algorithm algorithm = kernel.algorithm == "merge" ? HATTN_ALGORITHM_SPLIT_KV : HATTN_ALGORITHM_AUTO;
    for (const cases::Case *c : list) {
        test::Prepared &data = prepared(*c);
        test::Outcome outcome = test::run(context.get(), data.problem, algorithm);
        ASSERT_TRUE(outcome.ok()) << outcome.text() << '\n' << cases::describe(*c);
        ASSERT_EQ(cases::difference(data.problem, data.expected), "") << cases::describe(*c);
    }
}

INSTANTIATE_TEST_SUITE_P(Of, KernelByName, testing::ValuesIn(kernels()),
                         [](const testing::TestParamInfo<Kernel> &kernel) {
                             return test::as_test_name(kernel.param.name);
                         });

std::vector<Kernel> stored_kernels() {
    std::vector<Kernel> list = kernels();
    std::erase_if(list, [](const Kernel &kernel) { return !kernel.any_storage; });
    return list;
}

class StoredKernelByName : public testing::TestWithParam<Kernel> {};

TEST_P(StoredKernelByName, MatchesOracleInEveryType) {
    const Kernel &kernel = GetParam();
    if (!kernel.runnable) {
        GTEST_SKIP() << kernel.target << " does not run on this machine";
    }
    test::ContextPtr context = test::make_context(1, "kernel=" + kernel.name);  // threads start in the first execute
    const std::vector<const cases::Case *> list = fitting_cases(kernel, std::size(test::kStoredTypes), true);
    ASSERT_FALSE(list.empty());
    for (size_t i = 0; i < std::size(test::kStoredTypes); ++i) {
        const cases::Case &c = *list[i % list.size()];
        SCOPED_TRACE(std::string(test::kStoredTypes[i].name) + '\n' + cases::describe(c));
        cases::TypedProblem problem(c, test::kStoredTypes[i]);
        test::expect_oracle(context.get(), problem, HATTN_FLOAT32);
    }
}

INSTANTIATE_TEST_SUITE_P(Of, StoredKernelByName, testing::ValuesIn(stored_kernels()),
                         [](const testing::TestParamInfo<Kernel> &kernel) {
                             return test::as_test_name(kernel.param.name);
                         });

TEST(KernelTable, HasItsSetsOfHooksForEveryTargetAndNoNameTwice) {
    using HookSets = std::set<std::vector<std::string>>;
    const HookSets of_many = {{}, {"bias", "alibi", "mask"}, {"softcap", "bias", "alibi", "mask"}};
    HookSets of_scores = of_many;
    of_scores.insert({"softcap"});
    HookSets each = of_scores;
    each.insert({{"bias"}, {"alibi"}, {"mask"}});
    // Of kernels that go in bands a mask beside another, too.
    HookSets in_bands = each;
    in_bands.insert({{"softcap", "mask"}, {"bias", "mask"}, {"alibi", "mask"}});
    const auto of_flash = [&](const std::string &target) -> const HookSets & {
        return target == "x86-avx512" ? in_bands : each;
    };
    std::map<std::string, int> names;
    std::map<std::string, HookSets> sets;
    for (const Kernel &kernel : kernels()) {
        ++names[kernel.name];
        sets[kernel.target + " " + kernel.algorithm].insert(kernel.hooks);
    }
    for (const auto &[name, count] : names) {
        EXPECT_EQ(count, 1) << name;
    }
    for (const std::string &target : test::target_names()) {
        for (const char *algorithm : {"naive", "flash", "split_kv", "probabilities"}) {
            const HookSets &usual = std::string(algorithm) == "flash" ? of_flash(target) : each;
            EXPECT_EQ(sets[target + " " + algorithm], target == "generic" ? of_many : usual)
                << target << ' ' << algorithm;
        }
        EXPECT_EQ(sets[target + " scores"], target == "generic" ? of_scores : each) << target;
        EXPECT_EQ(sets[target + " unfused_scores"], of_many) << target;
    }
}

// Of a target that runs, kernels may still need more than it does.
TEST(KernelTable, UnrunnableTargetsAreThoseTheLibraryRefuses) {
    for (const Kernel &kernel : kernels()) {
        const bool opens = test::context_for(kernel.target).context != nullptr;
        EXPECT_EQ(kernel.runnable, opens && cpu_has_features(kernel.needs.c_str())) << kernel.name;
    }
}

}  // namespace
