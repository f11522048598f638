// Packed queries and keys, wrong in each way: exact status, the sentence, and nothing written.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <ostream>

#include "packed_problem.h"
#include "support/refusal.h"
#include "support/run.h"

namespace {

using namespace hattn;
using cases::PackedProblem;

constexpr hattn_status kInvalid = HATTN_INVALID_ARGUMENT, kCapacity = HATTN_CAPACITY_EXCEEDED;

// Sequences of 5, 0 and 3 rows, and of 9, 4 and 7 keys.
cases::Case packed_case() {
    cases::Case c;
    c.name = "wrong_packed";
    c.batch = 3;
    c.query_heads = 6;
    c.kv_heads = 3;
    c.query_length = 5;
    c.kv_length = 9;
    c.q_lengths = {5, 0, 3};
    c.kv_lengths = {9, 4, 7};
    c.bias = cases::varying("hqk");
    c.mask = cases::varying("bk");
    return c;
}

struct WrongPacking {
    const char *name;
    std::function<void(PackedProblem &)> spoil;
    test::Refusal refusal;
};

void PrintTo(const WrongPacking &wrong, std::ostream *stream) {
    *stream << wrong.name;
}

WrongPacking wrong_entry(const char *name, std::vector<int32_t> PackedProblem::*ends, size_t entry, int32_t value,
                         test::Refusal refusal) {
    return {name, [=](PackedProblem &packed) { (packed.*ends)[entry] = value; }, std::move(refusal)};
}

std::vector<WrongPacking> wrong_ends() {
    constexpr auto kQueries = &PackedProblem::cu_seqlens_q, kKeys = &PackedProblem::cu_seqlens_k;
    constexpr int32_t kHuge = std::numeric_limits<int32_t>::max();
    return {
        wrong_entry("queries_begin_late", kQueries, 0, 1, {kInvalid, {"cu_seqlens_q[0]", "1", "0"}}),
        wrong_entry("queries_begin_early", kQueries, 0, -4, {kInvalid, {"cu_seqlens_q[0]", "-4", "0"}}),
        wrong_entry("queries_go_back", kQueries, 2, 4, {kInvalid, {"cu_seqlens_q[2]", "4", "5"}}),
        wrong_entry("queries_end_early", kQueries, 3, 7, {kInvalid, {"cu_seqlens_q[3]", "7", "8"}}),
        wrong_entry("queries_end_late", kQueries, 3, 10, {kInvalid, {"cu_seqlens_q[3]", "10", "8"}}),
        wrong_entry("queries_too_many", kQueries, 1, 6, {kCapacity, {"cu_seqlens_q", "0", "6", "5"}}),
        wrong_entry("queries_far_too_many", kQueries, 3, kHuge, {kCapacity, {"cu_seqlens_q", "2", "2147483642", "5"}}),
        wrong_entry("keys_begin_late", kKeys, 0, 3, {kInvalid, {"cu_seqlens_k[0]", "3", "0"}}),
        wrong_entry("keys_too_many", kKeys, 1, 14, {kCapacity, {"cu_seqlens_k", "0", "14", "9"}}),
        wrong_entry("keys_negative", kKeys, 3, -1, {kInvalid, {"cu_seqlens_k[3]", "-1", "13"}}),
        wrong_entry("keys_end_early", kKeys, 3, 19, {kInvalid, {"cu_seqlens_k[3]", "19", "20"}}),
        wrong_entry("keys_end_late", kKeys, 3, 21, {kInvalid, {"cu_seqlens_k[3]", "21", "20"}}),
    };
}

std::vector<WrongPacking> wrong_arguments() {
    using P = PackedProblem;
    static const int32_t lengths[] = {1, 0, 1};
    return {
        {"queries_null", [](P &p) { p.args.cu_seqlens_q = nullptr; }, {kInvalid, {"cu_seqlens_q", "null", "8"}}},
        {"plan_is_not_packed", [](P &p) { p.desc.packed_queries = 0; }, {kInvalid, {"cu_seqlens_q", "given", "0"}}},
        {"keys_only",
         [](P &p) {
             p.desc.packed_queries = 0;
             p.args.cu_seqlens_q = nullptr;
         },
         {kInvalid, {"cu_seqlens_k", "packed_queries", "0"}}},
        {"q_lengths_too", [](P &p) { p.args.q_lengths = lengths; }, {kInvalid, {"q_lengths", "cu_seqlens_q"}}},
        {"pages_too", [](P &p) { p.args.block_table = lengths; }, {kInvalid, {"block_table", "cu_seqlens_k"}}},
        {"kv_lengths_too", [](P &p) { p.args.kv_lengths = lengths; }, {kInvalid, {"kv_lengths", "cu_seqlens_k"}}},
        {"more_rows_than_planned",
         [](P &p) { p.desc.packed_queries = 7; },
         {kCapacity, {"q", "8", "packed_queries", "7"}}},
        {"q_batch", [](P &p) { p.args.q.extent[0] = 3; }, {kInvalid, {"q", "3", "1"}}},
        {"out_batch", [](P &p) { p.args.out.extent[0] = 3; }, {kInvalid, {"out", "3", "1"}}},
        {"out_rows", [](P &p) { p.args.out.extent[2] = 5; }, {kInvalid, {"out", "5", "8"}}},
        {"lse_rows", [](P &p) { p.args.lse.extent[2] = 5; }, {kInvalid, {"lse", "5", "8"}}},
        {"k_batch", [](P &p) { p.args.k.extent[0] = 3; }, {kInvalid, {"k", "3", "1"}}},
        {"v_batch", [](P &p) { p.args.v.extent[0] = 2; }, {kInvalid, {"v", "2", "1"}}},
        {"v_rows", [](P &p) { p.args.v.extent[2] = 9; }, {kInvalid, {"v", "9", "20"}}},
        {"bias_rows", [](P &p) { p.args.bias.extent[2] = 5; }, {kInvalid, {"bias", "5", "8"}}},
        {"bias_keys", [](P &p) { p.args.bias.extent[3] = 8; }, {kInvalid, {"bias", "8", "9"}}},
        {"bias_batch_and_rows", [](P &p) { p.args.bias.extent[0] = 3; }, {kInvalid, {"bias", "3", "8", "1"}}},
        {"mask_batch", [](P &p) { p.args.mask.extent[0] = 2; }, {kInvalid, {"mask", "2", "3"}}},
    };
}

std::vector<WrongPacking> all_wrong() {
    std::vector<WrongPacking> all = wrong_ends();
    for (WrongPacking &wrong : wrong_arguments()) {
        all.push_back(std::move(wrong));
    }
    return all;
}

class PackedErrors : public testing::TestWithParam<WrongPacking> {};

TEST_P(PackedErrors, AreRefused) {
    test::ContextPtr context = test::make_context();
    cases::Problem padded(packed_case());
    PackedProblem packed(padded, cases::PackedKeys::kYes);
    for (cases::TensorData *output : {&packed.out, &packed.lse}) {
        cases::fill_bytes(*output, cases::Problem::kOutputFill);
    }
    GetParam().spoil(packed);
    const test::Outcome planned = test::execute(test::make_plan(context.get(), packed.desc).get(), packed.args);
    EXPECT_EQ(test::mismatch(planned, GetParam().refusal), "");
    const hattn_status status = hattn_attention(context.get(), &packed.desc, &packed.args);
    EXPECT_EQ(test::mismatch(test::outcome_of(status, context.get()), GetParam().refusal), "");
    for (const cases::TensorData *output : {&packed.out, &packed.lse}) {
        EXPECT_TRUE(cases::all_bytes_hold(*output, cases::Problem::kOutputFill));
    }
}

INSTANTIATE_TEST_SUITE_P(Wrong, PackedErrors, testing::ValuesIn(all_wrong()),
                         [](const testing::TestParamInfo<WrongPacking> &wrong) { return wrong.param.name; });

// Score outputs are for padded batches only, so far.
TEST(PackedPlan, HasNoScoreOutput) {
    test::ContextPtr context = test::make_context();
    hattn_attention_desc desc = cases::desc_of(packed_case());
    desc.packed_queries = 8;
    desc.scores = HATTN_SCORES_MASKED;
    hattn_plan *plan = nullptr;
    const test::Outcome outcome = test::outcome_of(hattn_plan_create(context.get(), &desc, &plan), context.get());
    EXPECT_EQ(test::mismatch(outcome, {HATTN_NOT_SUPPORTED, {"scores", "3", "packed_queries", "8"}}), "");
    EXPECT_EQ(plan, nullptr);
}

}  // namespace
