// The tile candidates of a kernel kind for a target, compiled into a pack, each by name on cases that are hard on
// tiles: ragged lengths, windows, few rows, odd head sizes, every hook.
//
// A target that this CPU cannot run is verified through kernels with "_on_" in their name: its schedules and vectors,
// compiled to instructions that are there.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <set>

#include "case.h"
#include "runtime/kernel_registry.h"
#include "support/json_text.h"
#include "support/run.h"
#include "support/targets.h"

namespace {

using namespace hattn;

cases::Case named(const char *name, int64_t query_length, int64_t kv_length, int64_t key_dim, int64_t value_dim) {
    cases::Case c;
    c.name = std::string("candidates_") + name;
    c.query_length = query_length;
    c.kv_length = kv_length;
    c.key_dim = key_dim;
    c.value_dim = value_dim;
    return c;
}

std::vector<cases::Case> all_cases() {
    cases::Case prefill = named("prefill", 70, 203, 64, 64);
    prefill.query_heads = 4;
    prefill.kv_heads = 2;
    prefill.causal = true;

    cases::Case ragged = named("ragged", 33, 150, 40, 40);
    ragged.batch = 3;
    ragged.causal = true;
    ragged.q_lengths = {33, 0, 7};
    ragged.kv_lengths = {150, 64, 1};
    ragged.data = cases::Data::kPoisonHidden;

    cases::Case window = named("window", 50, 300, 128, 96);
    window.window_left = 37;
    window.window_right = 5;
    window.data = cases::Data::kPoisonHidden;

    cases::Case decode = named("decode", 1, 700, 129, 1);
    decode.query_heads = 8;

    cases::Case few_rows = named("few_rows", 3, 133, 1, 129);
    few_rows.query_heads = 6;
    few_rows.kv_heads = 2;

    cases::Case rows_without_keys = named("rows_without_keys", 40, 17, 33, 31);
    rows_without_keys.causal = true;
    rows_without_keys.sinks = cases::Sinks::kNormal;

    cases::Case many_rows = named("many_rows", 129, 257, 16, 16);
    many_rows.query_heads = 1;

    std::vector<cases::Case> list = {prefill, ragged, window, decode, few_rows, rows_without_keys, many_rows};
    for (cases::Case c : {prefill, window, few_rows}) {
        c.name += "_all_hooks";
        c.softcap = 5.0f;
        c.bias = cases::varying("hqk");
        c.bias_values = cases::BiasValues::kSomeNegativeInf;
        c.alibi = true;
        c.mask = cases::varying("qk");
        list.push_back(c);
    }
    return list;
}

// Kernels of a process share the cases.
std::vector<std::unique_ptr<test::Prepared>> &prepared() {
    static std::vector<std::unique_ptr<test::Prepared>> all;
    if (all.empty()) {
        for (const cases::Case &c : all_cases()) {
            all.push_back(std::make_unique<test::Prepared>(c));
        }
    }
    return all;
}

struct Kernel {
    std::string name;
    bool has_hooks;
};

void PrintTo(const Kernel &kernel, std::ostream *stream) {
    *stream << kernel.name;
}

nlohmann::json all_kernels() {
    return test::info_of(test::make_context().get()).at("kernels");
}

// Those of the pack that HATTN_PACKS names.
std::vector<Kernel> kernels() {
    std::vector<Kernel> list;
    for (const nlohmann::json &row : all_kernels()) {
        if (!row.at("pack").is_null()) {
            list.push_back({row.at("name"), !row.at("hooks").empty()});
        }
    }
    return list;
}

class Candidate : public testing::TestWithParam<Kernel> {};

TEST_P(Candidate, MatchesOracle) {
    const Kernel &kernel = GetParam();
    // One thread: further ones allocate when they start.
    test::ContextPtr context = test::make_context(1, "kernel=" + kernel.name);
    int runs = 0;
    for (const auto &data : prepared()) {
        const cases::Case &c = data->problem.spec;
        if (c.hooks().empty() == kernel.has_hooks) {
            continue;
        }
        test::Outcome outcome = test::run(context.get(), data->problem);
        ASSERT_TRUE(outcome.ok()) << outcome.text() << '\n' << cases::describe(c);
        EXPECT_EQ(cases::difference(data->problem, data->expected), "") << cases::describe(c);
        EXPECT_EQ(outcome.allocations, 0u) << cases::describe(c);
        ++runs;
    }
    EXPECT_GT(runs, 0);
}

INSTANTIATE_TEST_SUITE_P(Of, Candidate, testing::ValuesIn(kernels()), [](const testing::TestParamInfo<Kernel> &kernel) {
    return test::as_test_name(kernel.param.name);
});

// "flash_x86_avx512_on_x86_avx2_r48k64v3u8d8" stands in for "flash_x86_avx512_r48k64v3u8d8".
std::string candidate_verified_by(const std::string &kernel) {
    const size_t on = kernel.find("_on_");
    return on == std::string::npos ? kernel : kernel.substr(0, on) + kernel.substr(kernel.find("_r", on));
}

// kernels_test verifies those that the library has and this CPU can run.
TEST(CandidatePack, LeavesNoCandidateOfItsKindAndTargetOut) {
    constexpr size_t kFewest = 12;
    std::set<std::string> verified, in_pack;
    for (const nlohmann::json &row : all_kernels()) {
        const std::string name = candidate_verified_by(row.at("name"));
        if (row.at("runnable")) {
            verified.insert(name);
        }
        if (!row.at("pack").is_null()) {
            in_pack.insert(name);
        }
    }
    std::set<std::pair<std::string, KernelKind>> sets;
    for (size_t i = 0; i < kernel_table().candidate_count; ++i) {
        const CandidateInfo &candidate = kernel_table().candidates[i];
        if (in_pack.count(candidate.name)) {
            sets.insert({candidate.target, candidate.kind});
        }
    }
    ASSERT_EQ(sets.size(), 1u);
    const auto &[target, kind] = *sets.begin();
    const std::vector<const CandidateInfo *> all = find_candidates(*find_target(target), kind);
    EXPECT_GE(all.size(), kFewest);
    for (const CandidateInfo *candidate : all) {
        EXPECT_TRUE(verified.count(candidate->name)) << candidate->name;
    }
}

}  // namespace
