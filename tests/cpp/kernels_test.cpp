// Every kernel of the table by name, whatever the planner would choose, on cases that need exactly its hooks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <ostream>
#include <set>

#include "case_list.h"
#include "support/json_text.h"
#include "support/run.h"
#include "support/targets.h"

namespace {

using namespace hattn;

struct Kernel {
    std::string name;
    std::string target;
    std::string algorithm;
    std::vector<std::string> hooks;
    bool runnable = false;
};

void PrintTo(const Kernel &kernel, std::ostream *stream) {
    *stream << kernel.name;
}

std::vector<Kernel> kernels() {
    std::vector<Kernel> list;
    test::ContextPtr context = test::make_context();
    const nlohmann::json info = test::info_of(context.get());
    for (const nlohmann::json &row : info.at("kernels")) {
        list.push_back({row.at("name"), row.at("target"), row.at("algorithm"), row.at("hooks"), row.at("runnable")});
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

// Whether an execute of the case needs this very kernel, given that its target and algorithm are forced.
bool fits(const Kernel &kernel, const cases::Case &c) {
    if (kernel.algorithm == "merge") {
        constexpr int64_t kMoreThanOneSplit = 600;
        return c.hooks().empty() && c.kv_length > kMoreThanOneSplit;
    }
    if (kernel.algorithm == "unfused_values") {
        // These know but whether keys can be hidden.
        std::vector<std::string> hooks = c.hooks();
        const auto hides = [](const std::string &hook) { return hook == "bias" || hook == "mask"; };
        return std::any_of(hooks.begin(), hooks.end(), hides) == !kernel.hooks.empty() && c.work() > 0.0 &&
               c.work() <= cases::kSmallWork;
    }
    bool scores_fit = (kernel.algorithm != "scores" || c.scores == HATTN_SCORES_MASKED) &&
                      (kernel.algorithm != "probabilities" || c.scores == HATTN_SCORES_PROBABILITIES);
    return scores_fit && c.hooks() == kernel.hooks && c.work() > 0.0 && c.work() <= cases::kSmallWork;
}

// Up to `count` cases spread evenly over those that fit.
std::vector<const cases::Case *> fitting_cases(const Kernel &kernel, size_t count) {
    std::vector<const cases::Case *> fitting, chosen;
    for (const cases::Case &c : cases::all_cases()) {
        if (fits(kernel, c)) {
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
    constexpr size_t kCases = 24;
    const Kernel &kernel = GetParam();
    if (!kernel.runnable) {
        GTEST_SKIP() << kernel.target << " does not run on this machine";
    }
    test::ContextPtr context = test::make_context(2, "kernel=" + kernel.name);
    std::vector<const cases::Case *> list = fitting_cases(kernel, kCases);
    ASSERT_FALSE(list.empty());
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

TEST(KernelTable, HasEveryHookCombinationForEveryTargetAndNoNameTwice) {
    std::map<std::string, int> names;
    std::map<std::string, std::set<std::vector<std::string>>> combinations;
    for (const Kernel &kernel : kernels()) {
        ++names[kernel.name];
        combinations[kernel.target + " " + kernel.algorithm].insert(kernel.hooks);
    }
    for (const auto &[name, count] : names) {
        EXPECT_EQ(count, 1) << name;
    }
    for (const std::string &target : test::target_names()) {
        for (const char *algorithm : {"naive", "flash", "split_kv", "unfused_scores", "scores", "probabilities"}) {
            EXPECT_EQ(combinations[target + " " + algorithm].size(), 16u) << target << ' ' << algorithm;
        }
    }
}

TEST(KernelTable, UnrunnableTargetsAreThoseTheLibraryRefuses) {
    for (const Kernel &kernel : kernels()) {
        EXPECT_EQ(kernel.runnable, test::context_for(kernel.target).context != nullptr) << kernel.name;
    }
}

}  // namespace
