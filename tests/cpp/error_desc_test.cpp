// Every member of hattn_attention_desc, wrong in each way: exact status, the sentence, and nothing written.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>

#include "problem.h"
#include "support/refusal.h"
#include "support/run.h"

namespace {

using namespace hattn;
using test::Refusal;
using test::unknown;

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct WrongDesc {
    const char *name;
    std::function<void(hattn_attention_desc &)> spoil;
    Refusal refusal;
};

void PrintTo(const WrongDesc &wrong, std::ostream *stream) {
    *stream << wrong.name;
}

template<typename T>
WrongDesc member(const char *name, T hattn_attention_desc::*which, T value, Refusal refusal) {
    return {name, [=](hattn_attention_desc &desc) { desc.*which = value; }, std::move(refusal)};
}

cases::Case base_case() {
    cases::Case c;
    c.name = "wrong_desc";
    c.batch = 2;
    c.query_heads = 6;
    c.kv_heads = 3;
    return c;
}

std::vector<WrongDesc> wrong_enums() {
    using D = hattn_attention_desc;
    constexpr hattn_status kInvalid = HATTN_INVALID_ARGUMENT;
    return {
        member("dtype_zero", &D::dtype, unknown<hattn_dtype>(0), {kInvalid, {"dtype", "0"}}),
        member("dtype_unknown", &D::dtype, unknown<hattn_dtype>(99), {kInvalid, {"dtype", "99"}}),
        member("dtype_negative", &D::dtype, unknown<hattn_dtype>(-3), {kInvalid, {"dtype"}}),
        member("dtype_bool", &D::dtype, HATTN_BOOL, {kInvalid, {"dtype"}}),
        member("dtype_int8", &D::dtype, HATTN_INT8, {kInvalid, {"dtype", "int8"}}),
        member("k_dtype_bool", &D::k_dtype, HATTN_BOOL, {kInvalid, {"k_dtype", "bool"}}),
        member("v_dtype_unknown", &D::v_dtype, unknown<hattn_dtype>(99), {kInvalid, {"v_dtype", "99"}}),
        member("out_dtype_int4", &D::out_dtype, HATTN_INT4, {kInvalid, {"out_dtype", "int4"}}),
        member("device_unknown", &D::device, unknown<hattn_device>(77), {kInvalid, {"device", "77"}}),
        member("device_id_negative", &D::device_id, -1, {kInvalid, {"device_id", "-1"}}),
        member("device_id_of_the_cpu", &D::device_id, 1, {kInvalid, {"device_id", "1"}}),
        member("scores_unknown", &D::scores, unknown<hattn_scores>(5), {kInvalid, {"scores", "5"}}),
        member("scores_negative", &D::scores, unknown<hattn_scores>(-1), {kInvalid, {"scores"}}),
        member("algorithm_unknown", &D::algorithm, unknown<hattn_algorithm>(5), {kInvalid, {"algorithm", "5"}}),
        member("algorithm_negative", &D::algorithm, unknown<hattn_algorithm>(-1), {kInvalid, {"algorithm"}}),
    };
}

std::vector<WrongDesc> wrong_sizes() {
    using D = hattn_attention_desc;
    constexpr hattn_status kInvalid = HATTN_INVALID_ARGUMENT, kOverflow = HATTN_OVERFLOW;
    std::string size = std::to_string(sizeof(D)), larger = std::to_string(sizeof(D) + 1);
    return {
        member("struct_size_of_the_future", &D::struct_size, sizeof(D) + 1, {kInvalid, {"struct_size", larger, size}}),
        member("struct_size_smaller", &D::struct_size, sizeof(D) - 4,
               {kInvalid, {"struct_size", std::to_string(sizeof(D) - 4), size}}),
        member("struct_size_zero", &D::struct_size, size_t{0}, {kInvalid, {"struct_size", "0"}}),
        member("batch_negative", &D::batch, int64_t{-1}, {kInvalid, {"batch", "-1"}}),
        member("query_heads_zero", &D::query_heads, int64_t{0}, {kInvalid, {"query_heads", "0"}}),
        member("query_heads_negative", &D::query_heads, int64_t{-6}, {kInvalid, {"query_heads", "-6"}}),
        member("kv_heads_zero", &D::kv_heads, int64_t{0}, {kInvalid, {"kv_heads", "0"}}),
        member("kv_heads_negative", &D::kv_heads, int64_t{-3}, {kInvalid, {"kv_heads", "-3"}}),
        member("head_ratio", &D::query_heads, int64_t{7}, {kInvalid, {"query_heads", "7", "kv_heads", "3"}}),
        member("fewer_query_heads", &D::query_heads, int64_t{2}, {kInvalid, {"query_heads", "2", "kv_heads", "3"}}),
        member("query_length_negative", &D::query_length, int64_t{-4}, {kInvalid, {"query_length", "-4"}}),
        member("kv_length_negative", &D::kv_length, int64_t{-2}, {kInvalid, {"kv_length", "-2"}}),
        member("key_dim_zero", &D::key_dim, int64_t{0}, {kInvalid, {"key_dim", "0"}}),
        member("key_dim_negative", &D::key_dim, int64_t{-8}, {kInvalid, {"key_dim", "-8"}}),
        member("value_dim_zero", &D::value_dim, int64_t{0}, {kInvalid, {"value_dim", "0"}}),
        member("value_dim_negative", &D::value_dim, int64_t{-8}, {kInvalid, {"value_dim", "-8"}}),
        member("packed_queries_negative", &D::packed_queries, int64_t{-1}, {kInvalid, {"packed_queries", "-1"}}),
        member("batch_overflows", &D::batch, kHuge, {kOverflow, {"batch"}}),
        member("query_length_overflows", &D::query_length, kHuge, {kOverflow, {"query_length"}}),
        member("kv_length_overflows", &D::kv_length, kHuge, {kOverflow, {"kv_length"}}),
        member("key_dim_large", &D::key_dim, int64_t{65537}, {HATTN_NOT_SUPPORTED, {"key_dim", "65537", "65536"}}),
        member("value_dim_large", &D::value_dim, int64_t{1} << 20, {HATTN_NOT_SUPPORTED, {"value_dim", "1048576"}}),
        member("key_dim_overflows", &D::key_dim, kHuge, {kOverflow, {"key_dim"}}),
        member("value_dim_overflows", &D::value_dim, kHuge, {kOverflow, {"value_dim"}}),
        member("packed_queries_overflow", &D::packed_queries, kHuge, {kOverflow, {"packed_queries"}}),
        {"query_heads_overflow", [](D &desc) { desc.query_heads = kHuge / 3 * 3; }, {kOverflow, {"query_heads"}}},
        {"product_overflows",
         [](D &desc) {
             desc.batch = desc.query_length = int64_t{1} << 31;
             desc.key_dim = int64_t{1} << 20;
         },
         {kOverflow, {}}},
    };
}

std::vector<WrongDesc> wrong_options() {
    using D = hattn_attention_desc;
    constexpr hattn_status kInvalid = HATTN_INVALID_ARGUMENT;
    return {
        member("scale_infinite", &D::scale, kInf, {kInvalid, {"scale", "inf"}}),
        member("scale_minus_infinite", &D::scale, -kInf, {kInvalid, {"scale", "-inf"}}),
        member("causal_two", &D::causal, 2, {kInvalid, {"causal", "2"}}),
        member("causal_negative", &D::causal, -1, {kInvalid, {"causal", "-1"}}),
        member("window_left", &D::window_left, int64_t{-2}, {kInvalid, {"window_left", "-2"}}),
        member("window_right", &D::window_right, int64_t{-7}, {kInvalid, {"window_right", "-7"}}),
        member("softcap_negative", &D::softcap, -1.0f, {kInvalid, {"softcap", "-1"}}),
        member("softcap_nan", &D::softcap, NAN, {kInvalid, {"softcap", "nan"}}),
        member("softcap_infinite", &D::softcap, kInf, {kInvalid, {"softcap", "inf"}}),
        member("has_bias", &D::has_bias, 3, {kInvalid, {"has_bias", "3"}}),
        member("has_mask", &D::has_mask, -1, {kInvalid, {"has_mask", "-1"}}),
        member("has_alibi", &D::has_alibi, 2, {kInvalid, {"has_alibi", "2"}}),
        member("has_sinks", &D::has_sinks, 2, {kInvalid, {"has_sinks", "2"}}),
        member("threads_negative", &D::threads, -1, {kInvalid, {"threads", "-1"}}),
        member("page_size_one", &D::page_size, int64_t{1}, {kInvalid, {"page_size", "1", "16", "128"}}),
        member("page_size_negative", &D::page_size, int64_t{-32}, {kInvalid, {"page_size", "-32"}}),
        member("ring_negative", &D::ring, -1, {kInvalid, {"ring", "-1"}}),
        member("ring_without_window", &D::ring, 1, {kInvalid, {"window_left", "-1", "ring"}}),
    };
}

std::vector<WrongDesc> all_wrong() {
    std::vector<WrongDesc> all;
    for (const auto &family : {wrong_enums(), wrong_sizes(), wrong_options()}) {
        all.insert(all.end(), family.begin(), family.end());
    }
    return all;
}

class DescErrors : public testing::TestWithParam<WrongDesc> {};

TEST_P(DescErrors, PlanCreate) {
    test::ContextPtr context = test::make_context();
    cases::Problem problem(base_case());
    GetParam().spoil(problem.desc);
    auto *sentinel = reinterpret_cast<hattn_plan *>(uintptr_t{0x5a5a5a40});
    hattn_plan *plan = sentinel;
    hattn_status status = hattn_plan_create(context.get(), &problem.desc, &plan);
    EXPECT_EQ(test::mismatch(test::outcome_of(status, context.get()), GetParam().refusal), "");
    EXPECT_EQ(plan, sentinel);
}

TEST_P(DescErrors, OneShot) {
    test::ContextPtr context = test::make_context();
    cases::Problem problem(base_case());
    GetParam().spoil(problem.desc);
    hattn_status status = hattn_attention(context.get(), &problem.desc, &problem.args);
    EXPECT_EQ(test::mismatch(test::outcome_of(status, context.get()), GetParam().refusal), "");
    EXPECT_TRUE(problem.outputs_untouched());
}

INSTANTIATE_TEST_SUITE_P(Wrong, DescErrors, testing::ValuesIn(all_wrong()),
                         [](const testing::TestParamInfo<WrongDesc> &wrong) { return wrong.param.name; });

TEST(DescErrors, NullPointers) {
    test::ContextPtr context = test::make_context();
    cases::Problem problem(base_case());
    hattn_plan *plan = nullptr;
    auto refused = [&](hattn_status status, const char *argument) {
        return test::mismatch(test::outcome_of(status, context.get()), {HATTN_INVALID_ARGUMENT, {argument}});
    };
    EXPECT_EQ(refused(hattn_plan_create(nullptr, &problem.desc, &plan), "context"), "");
    EXPECT_EQ(refused(hattn_plan_create(context.get(), nullptr, &plan), "desc"), "");
    EXPECT_EQ(refused(hattn_plan_create(context.get(), &problem.desc, nullptr), "plan"), "");
    EXPECT_EQ(refused(hattn_attention(nullptr, &problem.desc, &problem.args), "context"), "");
    EXPECT_EQ(refused(hattn_attention(context.get(), nullptr, &problem.args), "desc"), "");
    EXPECT_EQ(refused(hattn_attention(context.get(), &problem.desc, nullptr), "args"), "");
    size_t bytes = 7;
    EXPECT_EQ(refused(hattn_plan_workspace_size(nullptr, &bytes), "plan"), "");
    EXPECT_EQ(bytes, 7u);
    test::PlanPtr good = test::make_plan(context.get(), problem.desc);
    EXPECT_EQ(refused(hattn_plan_workspace_size(good.get(), nullptr), "bytes"), "");
    EXPECT_EQ(refused(hattn_plan_device_workspace_size(nullptr, &bytes), "plan"), "");
    EXPECT_EQ(refused(hattn_plan_device_workspace_size(good.get(), nullptr), "bytes"), "");
    EXPECT_EQ(hattn_plan_device_workspace_size(good.get(), &bytes), HATTN_OK);
    EXPECT_EQ(bytes, 0u);
    EXPECT_TRUE(problem.outputs_untouched());
}

}  // namespace
