// Samples of the tile candidates for OpenCL, compiled into a pack, each by name: ragged lengths, windows, few rows, odd
// head sizes, and the hooks that a sample computes.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "support/devices.h"
#include "support/json_text.h"
#include "support/run.h"
#include "support/targets.h"

namespace {

using namespace hattn;
using nlohmann::json;

struct Kernel {
    std::string name;
    int64_t head = 0;
    std::vector<std::string> hooks;
};

void PrintTo(const Kernel &kernel, std::ostream *stream) {
    *stream << kernel.name;
}

// Those of the pack that HATTN_PACKS names.
std::vector<Kernel> kernels() {
    std::vector<Kernel> list;
    const json info = test::info_of(test::make_context().get());
    for (const json &device : info.at("devices")) {
        for (const json &row : device.at("kernels")) {
            if (device.at("name") == "opencl" && !row.at("pack").is_null()) {
                list.push_back({row.at("name"), row.at("tile").at("head"), row.at("hooks")});
            }
        }
    }
    return list;
}

cases::Case named(const char *name, int64_t query_length, int64_t kv_length, int64_t dim) {
    cases::Case c;
    c.name = std::string("opencl_candidates_") + name;
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = query_length;
    c.kv_length = kv_length;
    c.key_dim = c.value_dim = dim;
    return c;
}

std::vector<cases::Case> cases_of(const Kernel &kernel) {
    cases::Case prefill = named("prefill", 70, 203, kernel.head);
    prefill.causal = true;
    cases::Case ragged = named("ragged", 33, 150, kernel.head - 3);
    ragged.batch = 3;
    ragged.causal = true;
    ragged.q_lengths = {33, 0, 7};
    ragged.kv_lengths = {150, 64, 1};
    ragged.data = cases::Data::kPoisonHidden;
    cases::Case window = named("window", 20, 300, kernel.head);
    window.window_left = 37;
    window.window_right = 5;
    cases::Case decode = named("decode", 1, 700, kernel.head - 1);
    decode.query_heads = 8;
    decode.sinks = cases::Sinks::kNormal;
    std::vector<cases::Case> list = {prefill, ragged, window, decode};
    for (cases::Case &c : list) {
        for (const std::string &hook : kernel.hooks) {
            c.softcap = hook == "softcap" ? 1.5f : c.softcap;
            c.alibi = hook == "alibi" || c.alibi;
            c.bias = hook == "bias" ? cases::varying("hqk") : c.bias;
            c.mask = hook == "mask" ? cases::varying("qk") : c.mask;
        }
    }
    return list;
}

class OpenClCandidate : public testing::TestWithParam<Kernel> {};

TEST_P(OpenClCandidate, MatchesOracle) {
    if (const std::string why = test::device_unusable("opencl"); !why.empty()) {
        GTEST_SKIP() << why;
    }
    const test::ContextPtr context = test::make_context(1, "kernel=" + GetParam().name);
    for (const cases::Case &c : cases_of(GetParam())) {
        test::Prepared prepared(c);
        prepared.problem.desc.device = HATTN_OPENCL;
        const test::Outcome outcome = test::run(context.get(), prepared.problem);
        ASSERT_TRUE(outcome.ok()) << outcome.text() << '\n' << cases::describe(c);
        EXPECT_EQ(cases::difference(prepared.problem, prepared.expected), "") << cases::describe(c);
    }
}

INSTANTIATE_TEST_SUITE_P(Of, OpenClCandidate, testing::ValuesIn(kernels()),
                         [](const testing::TestParamInfo<Kernel> &kernel) { return kernel.param.name; });

TEST(OpenClCandidates, AreSamplesOfManyTiles) {
    EXPECT_GE(kernels().size(), 4u);
}

}  // namespace
