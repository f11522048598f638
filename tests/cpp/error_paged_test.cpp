// Block tables and rings of an execute, wrong in each way. What is right may be more than the kernels can read yet.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <ostream>

#include "support/refusal.h"
#include "support/run.h"

namespace {

using namespace hattn;
using test::Refusal;

constexpr hattn_status kInvalid = HATTN_INVALID_ARGUMENT;

// B = 2, Hq = 4, Hkv = 2, Sq = 3, D = 8; lengths 30 and 17, in pages of 16 or in rings of 32.
struct Scattered {
    enum Kind { kPages, kRing };

    explicit Scattered(Kind kind) : problem(make_case()), ring(kind == kRing) {
        hattn_attention_desc &desc = problem.desc;
        desc.page_size = ring ? 0 : 16;
        desc.ring = ring ? 1 : 0;
        desc.window_left = ring ? 15 : -1;
        problem.k = cases::make_tensor(HATTN_FLOAT32, {ring ? 2 : 7, 2, ring ? 32 : 16, 8});
        problem.v = cases::make_tensor(HATTN_FLOAT32, {ring ? 2 : 7, 2, ring ? 32 : 16, 8});
        problem.bind();
        problem.args.block_table = ring ? nullptr : table;
        problem.args.block_table_stride = ring ? 0 : 2;
    }

    static cases::Case make_case() {
        cases::Case c;
        c.name = "scattered";
        c.batch = 2;
        c.query_heads = 4;
        c.kv_heads = 2;
        c.query_length = 3;
        c.kv_length = 32;
        c.key_dim = c.value_dim = 8;
        c.kv_lengths = {30, 17};
        return c;
    }

    cases::Problem problem;
    bool ring;
    int32_t table[4] = {6, 0, 3, 3};
};

struct Wrong {
    const char *name;
    Scattered::Kind kind;
    std::function<void(Scattered &)> spoil;
    Refusal refusal;
};

void PrintTo(const Wrong &wrong, std::ostream *stream) {
    *stream << wrong.name;
}

std::vector<Wrong> wrong_pages() {
    constexpr auto kPages = Scattered::kPages;
    using S = Scattered;
    return {
        {"page_size_24", kPages, [](S &s) { s.problem.desc.page_size = 24; }, {kInvalid, {"page_size", "24", "16"}}},
        {"page_size_negative", kPages, [](S &s) { s.problem.desc.page_size = -16; }, {kInvalid, {"page_size", "-16"}}},
        {"page_size_other", kPages, [](S &s) { s.problem.desc.page_size = 32; }, {kInvalid, {"k", "16", "32"}}},
        {"ring_too", kPages, [](S &s) { s.problem.desc.ring = 1; }, {kInvalid, {"ring", "1", "page_size", "16"}}},
        {"table_null",
         kPages,
         [](S &s) { s.problem.args.block_table = nullptr; },
         {kInvalid, {"block_table", "null", "page_size", "16"}}},
        {"table_without_pages",
         Scattered::kRing,
         [](S &s) { s.problem.args.block_table = s.table; },
         {kInvalid, {"block_table", "given", "page_size", "0"}}},
        {"entry_negative", kPages, [](S &s) { s.table[1] = -1; }, {kInvalid, {"block_table[0][1]", "-1", "7"}}},
        {"entry_too_large", kPages, [](S &s) { s.table[3] = 7; }, {kInvalid, {"block_table[1][1]", "7"}}},
        {"entry_huge",
         kPages,
         [](S &s) { s.table[0] = std::numeric_limits<int32_t>::max(); },
         {kInvalid, {"block_table[0][0]", "2147483647", "7"}}},
        {"stride_too_small",
         kPages,
         [](S &s) { s.problem.args.block_table_stride = 1; },
         {kInvalid, {"block_table_stride", "1", "kv_lengths[0]", "30", "2", "16"}}},
        {"stride_negative",
         kPages,
         [](S &s) { s.problem.args.block_table_stride = -2; },
         {kInvalid, {"block_table_stride", "-2"}}},
        {"stride_huge",
         kPages,
         [](S &s) { s.problem.args.block_table_stride = std::numeric_limits<int64_t>::max(); },
         {kInvalid, {"block_table_stride", "9223372036854775807", "536870912"}}},
        {"lengths_null", kPages, [](S &s) { s.problem.args.kv_lengths = nullptr; }, {kInvalid, {"kv_lengths", "null"}}},
        {"length_beyond_the_plan",
         kPages,
         [](S &s) { s.problem.spec.kv_lengths[1] = 33; },
         {HATTN_CAPACITY_EXCEEDED, {"kv_lengths[1]", "33", "kv_length", "32"}}},
        {"length_negative",
         kPages,
         [](S &s) { s.problem.spec.kv_lengths[0] = -1; },
         {kInvalid, {"kv_lengths[0]", "-1"}}},
        {"page_extent_of_k", kPages, [](S &s) { s.problem.args.k.extent[2] = 15; }, {kInvalid, {"k", "15", "16"}}},
        {"page_extent_of_v", kPages, [](S &s) { s.problem.args.v.extent[2] = 15; }, {kInvalid, {"v", "15", "16"}}},
        {"pages_of_v", kPages, [](S &s) { s.problem.args.v.extent[0] = 6; }, {kInvalid, {"v", "pages", "6", "7"}}},
        {"heads_of_k", kPages, [](S &s) { s.problem.args.k.extent[1] = 1; }, {kInvalid, {"k", "1", "2"}}},
        {"strides_without_a_common_step",
         kPages,
         [](S &s) {
             s.problem.desc.page_size = s.problem.args.k.extent[2] = 32;
             s.problem.args.k.extent[0] = 1 << 28;
             s.problem.args.k.stride[0] = 257;
         },
         {HATTN_NOT_SUPPORTED, {"k", "257", "8"}}},
        {"out_overlaps_a_page",
         kPages,
         [](S &s) { s.problem.args.out.data = s.problem.k.floats() + 6 * s.problem.k.view.stride[0]; },
         {kInvalid, {"out", "overlaps", "k"}}},
    };
}

std::vector<Wrong> wrong_rings() {
    constexpr auto kRing = Scattered::kRing;
    using S = Scattered;
    return {
        {"ring_two", kRing, [](S &s) { s.problem.desc.ring = 2; }, {kInvalid, {"ring", "2"}}},
        {"no_window",
         kRing,
         [](S &s) { s.problem.desc.window_left = -1; },
         {kInvalid, {"window_left", "-1", "kv_length", "32"}}},
        {"window_too_wide",
         kRing,
         [](S &s) { s.problem.desc.window_left = 32; },
         {kInvalid, {"window_left", "32", "kv_length"}}},
        {"scores",
         kRing,
         [](S &s) { s.problem.desc.scores = HATTN_SCORES_RAW; },
         {HATTN_NOT_SUPPORTED, {"scores", "1", "ring"}}},
        {"odd_extent",
         kRing,
         [](S &s) { s.problem.args.k.extent[2] = s.problem.args.v.extent[2] = 31; },
         {kInvalid, {"k", "31", "16"}}},
        {"beyond_the_plan",
         kRing,
         [](S &s) { s.problem.desc.kv_length = 16; },
         {HATTN_CAPACITY_EXCEEDED, {"k", "32", "kv_length", "16"}}},
        {"ring_lengths_null",
         kRing,
         [](S &s) { s.problem.args.kv_lengths = nullptr; },
         {kInvalid, {"kv_lengths", "null", "ring"}}},
        {"ring_length_huge",
         kRing,
         [](S &s) { s.problem.spec.kv_lengths[1] = (1 << 29) + 1; },
         {kInvalid, {"kv_lengths[1]", "536870913", "536870912"}}},
        // Of 100 keys 68 to 99 are there; row 0 stands at 82 and sees keys from 67 on.
        {"row_sees_lost_keys",
         kRing,
         [](S &s) {
             s.problem.spec.kv_lengths = {30, 100};
             s.problem.spec.causal_offsets = {0, 82};
             s.problem.bind();
         },
         {kInvalid, {"kv_lengths[1]", "100", "32", "68", "67"}}},
    };
}

class ScatteredErrors : public testing::TestWithParam<Wrong> {};

TEST_P(ScatteredErrors, OneShot) {
    test::ContextPtr context = test::make_context();
    Scattered scattered(GetParam().kind);
    GetParam().spoil(scattered);
    const hattn_status status = hattn_attention(context.get(), &scattered.problem.desc, &scattered.problem.args);
    EXPECT_EQ(test::mismatch(test::outcome_of(status, context.get()), GetParam().refusal), "");
    EXPECT_TRUE(scattered.problem.outputs_untouched());
}

std::string name_of(const testing::TestParamInfo<Wrong> &wrong) {
    return wrong.param.name;
}
INSTANTIATE_TEST_SUITE_P(Pages, ScatteredErrors, testing::ValuesIn(wrong_pages()), name_of);
INSTANTIATE_TEST_SUITE_P(Rings, ScatteredErrors, testing::ValuesIn(wrong_rings()), name_of);

// What every wrong one starts from is right.
TEST(Scattered, TheProblemsThemselvesAreRight) {
    test::ContextPtr context = test::make_context();
    for (auto kind : {Scattered::kPages, Scattered::kRing}) {
        Scattered scattered(kind);
        cases::fill_bytes(scattered.problem.k, 0);
        cases::fill_bytes(scattered.problem.v, 0);
        const hattn_status status = hattn_attention(context.get(), &scattered.problem.desc, &scattered.problem.args);
        const test::Outcome outcome = test::outcome_of(status, context.get());
        EXPECT_TRUE(outcome.ok()) << outcome.text();
        EXPECT_FALSE(scattered.problem.outputs_untouched());
    }
}

}  // namespace
