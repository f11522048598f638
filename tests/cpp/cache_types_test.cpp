// KV caches in types other than float32: what they hold of appended rows, read as the documentation of the type says,
// and attention over it against the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "compare.h"
#include "input_data.h"
#include "number_formats.h"
#include "support/cache_model.h"
#include "support/run.h"
#include "support/targets.h"

namespace {

using namespace hattn;
using cases::element;

constexpr int64_t kBatch = 2, kHeads = 2, kRows = 37, kKeyDim = 40, kValueDim = 27, kScaleBlock = 32;

struct Types {
    const char *name;
    hattn_dtype keys, values;
};
constexpr Types kTypes[] = {
    {"float16", HATTN_FLOAT16, HATTN_FLOAT16},
    {"bfloat16", HATTN_BFLOAT16, HATTN_BFLOAT16},
    {"int8", HATTN_INT8, HATTN_INT8},
    {"int4", HATTN_INT4, HATTN_INT4},
    {"int8_and_int4", HATTN_INT8, HATTN_INT4},
    {"float32_and_int8", HATTN_FLOAT32, HATTN_INT8},
    {"int4_and_float16", HATTN_INT4, HATTN_FLOAT16},
};

int integer_at(const hattn_tensor &tensor, int64_t offset) {
    if (tensor.dtype == HATTN_INT8) {
        return static_cast<const int8_t *>(tensor.data)[offset];
    }
    const int nibble = static_cast<const uint8_t *>(tensor.data)[offset / 2] >> (offset % 2 == 0 ? 0 : 4) & 15;
    return nibble < 8 ? nibble : nibble - 16;
}

// The number that an element of the storage stands for.
double stored(const hattn_tensor &side, const hattn_tensor &scales, int64_t b, int64_t h, int64_t j, int64_t d) {
    switch (side.dtype) {
    case HATTN_FLOAT32:
        return static_cast<double>(element<float>(side, b, h, j, d));
    case HATTN_FLOAT16:
    case HATTN_BFLOAT16:
        return cases::decode(side.dtype, element<uint16_t>(side, b, h, j, d));
    default:
        return integer_at(side, cases::element_offset(side, b, h, j, d)) *
               static_cast<double>(element<float>(scales, b, h, j, d / kScaleBlock));
    }
}

// How far a number may be from what was appended: half a step of its type, of its block's largest element for integers.
double half_step(const hattn_tensor &given, hattn_dtype type, int64_t b, int64_t h, int64_t j, int64_t d) {
    if (type == HATTN_FLOAT32) {
        return 0.0;
    }
    const auto size = [&](int64_t at) { return std::fabs(static_cast<double>(element<float>(given, b, h, j, at))); };
    if (type == HATTN_FLOAT16 || type == HATTN_BFLOAT16) {
        return cases::roundoff(type) * size(d) + cases::smallest_step(type);
    }
    double largest = 0.0;
    const int64_t first = d / kScaleBlock * kScaleBlock;
    for (int64_t at = first; at < std::min(first + kScaleBlock, given.extent[3]); ++at) {
        largest = std::max(largest, size(at));
    }
    constexpr double kOfFloats = 1.0 + 0x1p-16;  // the scale itself is rounded
    return 0.5 * kOfFloats * largest / (type == HATTN_INT8 ? 127 : 7);
}

class CacheTypes : public testing::TestWithParam<std::tuple<std::string, Types>> {};

// Puts what the cache holds in place of what was appended to it.
void read_back(cases::TensorData &given, const hattn_tensor &side, const hattn_tensor &scales) {
    cases::for_each_index(cases::extents_of(given.view), [&](int64_t b, int64_t h, int64_t j, int64_t d) {
        float &value = element<float>(given.view, b, h, j, d);
        const double held = stored(side, scales, b, h, j, d);
        ASSERT_NEAR(held, static_cast<double>(value), half_step(given.view, side.dtype, b, h, j, d))
            << b << ' ' << h << ' ' << j << ' ' << d;
        // Integer times scale, as kernels have it: the product of a number of seven bits may be rounded.
        value = static_cast<float>(held);
    });
}

TEST_P(CacheTypes, HoldWhatIsAppendedAndAttendToIt) {
    const auto &[target, types] = GetParam();
    const test::TargetContext &implementation = test::context_for(target);
    if (!implementation.context) {
        GTEST_SKIP() << implementation.why_not;
    }
    hattn_context *context = implementation.context.get();
    hattn_kv_cache_desc desc = test::cache_desc(kBatch, kHeads, kRows + 3, kKeyDim, kValueDim);
    desc.dtype = types.keys;
    desc.value_dtype = types.values;
    const test::CachePtr cache = test::make_cache(context, desc);

    cases::Case c;
    c.name = std::string("cache_types_") + types.name;
    c.batch = kBatch;
    c.query_heads = 2 * kHeads;
    c.kv_heads = kHeads;
    c.query_length = 3;
    c.kv_length = kRows;
    c.key_dim = kKeyDim;
    c.value_dim = kValueDim;
    c.causal = true;
    cases::Problem problem(c);
    ASSERT_EQ(hattn_kv_append(cache.get(), &problem.k.view, &problem.v.view, nullptr), HATTN_OK);
    hattn_tensor k = HATTN_TENSOR_INIT, v = k, k_scale = k, v_scale = k;
    ASSERT_EQ(hattn_kv_cache_view(cache.get(), &k, &v), HATTN_OK);
    ASSERT_EQ(hattn_kv_cache_scales(cache.get(), &k_scale, &v_scale), HATTN_OK);
    EXPECT_EQ(k.dtype, types.keys);
    EXPECT_EQ(v.dtype, types.values);
    read_back(problem.k, k, k_scale);
    read_back(problem.v, v, v_scale);
    if (HasFatalFailure()) {
        return;
    }
    problem.fill_outputs();
    const cases::Expected expected = cases::evaluate(problem.desc, problem.args);
    hattn_attention_args args = problem.args;
    hattn_attention_desc attention = problem.desc;
    args.k = args.v = HATTN_TENSOR_INIT;
    attention.kv_length = attention.kv_heads = attention.key_dim = attention.value_dim = 0;  // the cache knows
    const test::Outcome outcome = test::outcome_of(hattn_kv_cache_attend(cache.get(), &attention, &args), context);
    ASSERT_TRUE(outcome.ok()) << outcome.text();
    EXPECT_EQ(cases::difference(problem, expected), "");
}

INSTANTIATE_TEST_SUITE_P(All, CacheTypes,
                         testing::Combine(testing::ValuesIn(test::target_names()), testing::ValuesIn(kTypes)),
                         [](const auto &run) {
                             return test::as_test_name(std::get<0>(run.param)) + "__" + std::get<1>(run.param).name;
                         });

}  // namespace
