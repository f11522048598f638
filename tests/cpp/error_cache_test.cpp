// Every argument of the KV cache's functions, wrong in each way: exact status, the sentence, and nothing written.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "support/cache_model.h"
#include "support/refusal.h"
#include "support/run.h"

namespace {

using namespace hattn;
using test::Refusal;

constexpr hattn_status kInvalid = HATTN_INVALID_ARGUMENT;

class CacheErrors : public testing::Test {
protected:
    CacheErrors() {
        fill(cache_);
    }

    static void fill(test::CacheModel &cache) {
        cases::Random random(5);
        EXPECT_TRUE(cache.append(6, {6, 2}, random).ok());
    }

    std::string refused(hattn_status status, const Refusal &refusal) {
        std::string text = test::mismatch(test::outcome_of(status, context_.get()), refusal);
        return text + (cache_.difference().empty() ? "" : "; the cache has changed");
    }

    std::string create_refused(void (*spoil)(hattn_kv_cache_desc &), const Refusal &refusal) {
        hattn_kv_cache_desc desc = test::cache_desc(2, 3, 10, 8, 4);
        spoil(desc);
        auto *sentinel = reinterpret_cast<hattn_kv_cache *>(uintptr_t{0x5a5a5a40});
        hattn_kv_cache *cache = sentinel;
        hattn_status status = hattn_kv_cache_create(context_.get(), &desc, &cache);
        std::string text = cache == sentinel ? "" : "*cache was written; ";
        return text + test::mismatch(test::outcome_of(status, context_.get()), refusal);
    }

    std::string append_refused(void (*spoil)(hattn_tensor &k, hattn_tensor &v), const Refusal &refusal) {
        hattn_tensor k = k_.view, v = v_.view;
        spoil(k, v);
        return refused(hattn_kv_append(cache_.cache(), &k, &v, nullptr), refusal);
    }

    test::ContextPtr context_ = test::make_context();
    test::CacheModel cache_{context_.get(), test::cache_desc(2, 3, 10, 8, 4)};
    cases::TensorData k_ = cases::make_tensor(HATTN_FLOAT32, {2, 3, 4, 8});
    cases::TensorData v_ = cases::make_tensor(HATTN_FLOAT32, {2, 3, 4, 4});
};

TEST_F(CacheErrors, Create) {
    using D = hattn_kv_cache_desc;
    std::string size = std::to_string(sizeof(D)), larger = std::to_string(sizeof(D) + 8);
    EXPECT_EQ(create_refused([](D &d) { d.struct_size += 8; }, {kInvalid, {"struct_size", size, larger}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.struct_size = 0; }, {kInvalid, {"struct_size", "0"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.dtype = HATTN_BOOL; }, {kInvalid, {"dtype", "bool"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.value_dtype = HATTN_INT32; }, {kInvalid, {"value_dtype", "int32"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.dtype = test::unknown<hattn_dtype>(99); }, {kInvalid, {"dtype", "99"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.batch = -2; }, {kInvalid, {"batch", "-2"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.kv_heads = 0; }, {kInvalid, {"kv_heads", "0"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.kv_heads = -3; }, {kInvalid, {"kv_heads", "-3"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.capacity = -1; }, {kInvalid, {"capacity", "-1"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.key_dim = 0; }, {kInvalid, {"key_dim", "0"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.key_dim = -8; }, {kInvalid, {"key_dim", "-8"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.value_dim = -1; }, {kInvalid, {"value_dim", "-1"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.key_dim = 65537; }, {HATTN_NOT_SUPPORTED, {"key_dim", "65537", "65536"}}),
              "");
    EXPECT_EQ(create_refused([](D &d) { d.value_dim = 70000; }, {HATTN_NOT_SUPPORTED, {"value_dim", "70000"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.page_size = 24; }, {kInvalid, {"page_size", "24", "16", "128"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.page_size = -1; }, {kInvalid, {"page_size", "-1"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.page_count = 3; }, {kInvalid, {"page_count", "3", "page_size", "0"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.page_count = -3; }, {kInvalid, {"page_count", "-3"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.window = -1; }, {kInvalid, {"window", "-1"}}), "");
    EXPECT_EQ(create_refused([](D &d) { d.window = 11; }, {kInvalid, {"window", "11", "capacity", "10"}}), "");
    EXPECT_EQ(create_refused(
                  [](D &d) {
                      d.window = 4;
                      d.page_size = 64;
                  },
                  {HATTN_INVALID_ARGUMENT, {"window", "4", "page_size", "64"}}),
              "");
    for (auto spoil : {+[](D &d) { d.batch = std::numeric_limits<int64_t>::max(); },
                       +[](D &d) { d.capacity = std::numeric_limits<int64_t>::max(); },
                       +[](D &d) { d.key_dim = std::numeric_limits<int64_t>::max() / 2; },
                       +[](D &d) { d.kv_heads = int64_t{1} << 62; },
                       +[](D &d) {
                           d.page_size = 16;
                           d.page_count = int64_t{1} << 40;
                       },
                       +[](D &d) {
                           d.page_size = 16;
                           d.batch = d.capacity = int64_t{1} << 28;
                       },
                       // 2^60 elements, whose bits do not fit.
                       +[](D &d) {
                           d.batch = d.capacity = int64_t{1} << 20;
                           d.kv_heads = d.key_dim = int64_t{1} << 10;
                       }}) {
        EXPECT_EQ(create_refused(spoil, {HATTN_OVERFLOW, {}}), "");
    }
}

TEST_F(CacheErrors, FixedScales) {
    for (const float scale : {0.0f, -1.0f, NAN, INFINITY}) {
        std::ostringstream text;
        text << scale;
        for (const char *name : {"k_scale", "v_scale"}) {
            cases::TensorData scales = cases::make_tensor(HATTN_FLOAT32, {1, 3, 1, 1});
            cases::fill_bytes(scales, 0x3f);  // 0.7
            static_cast<float *>(scales.view.data)[scales.view.stride[1]] = scale;
            hattn_kv_cache_desc desc = test::cache_desc(2, 3, 10, 8, 4);
            desc.dtype = desc.value_dtype = HATTN_INT8;
            (name[0] == 'k' ? desc.k_scale : desc.v_scale) = scales.view;
            hattn_kv_cache *cache = nullptr;
            const hattn_status status = hattn_kv_cache_create(context_.get(), &desc, &cache);
            EXPECT_EQ(test::mismatch(test::outcome_of(status, context_.get()),
                                     {kInvalid, {name, "kv head 1", text.str(), "positive and finite"}}),
                      "");
        }
    }
}

// Rows that lie on top of each other need no memory to be more than anything counts.
TEST_F(CacheErrors, MoreRowsThanAnythingCounts) {
    for (const int64_t rows : {std::numeric_limits<int64_t>::max(), int64_t{1} << 40, (int64_t{1} << 29) + 1}) {
        hattn_tensor k = k_.view, v = v_.view;
        k.extent[2] = v.extent[2] = rows;
        k.stride[2] = v.stride[2] = 0;
        EXPECT_EQ(refused(hattn_kv_append(cache_.cache(), &k, &v, nullptr),
                          {HATTN_OVERFLOW, {"k", "extent[2]", std::to_string(rows), "536870912"}}),
                  "");
    }
}

TEST_F(CacheErrors, NullPointers) {
    hattn_kv_cache_desc desc = test::cache_desc(2, 3, 10, 8, 4);
    hattn_kv_cache *cache = nullptr;
    int32_t lengths[2] = {7, 7};
    hattn_tensor view = HATTN_TENSOR_INIT;
    EXPECT_EQ(refused(hattn_kv_cache_create(nullptr, &desc, &cache), {kInvalid, {"context"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_create(context_.get(), nullptr, &cache), {kInvalid, {"desc"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_create(context_.get(), &desc, nullptr), {kInvalid, {"cache"}}), "");
    EXPECT_EQ(refused(hattn_kv_append(nullptr, &k_.view, &v_.view, nullptr), {kInvalid, {"cache"}}), "");
    EXPECT_EQ(refused(hattn_kv_append(cache_.cache(), nullptr, &v_.view, nullptr), {kInvalid, {"k"}}), "");
    EXPECT_EQ(refused(hattn_kv_append(cache_.cache(), &k_.view, nullptr, nullptr), {kInvalid, {"v"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_lengths(nullptr, lengths), {kInvalid, {"cache"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_lengths(cache_.cache(), nullptr), {kInvalid, {"lengths"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_truncate(nullptr, lengths), {kInvalid, {"cache"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_truncate(cache_.cache(), nullptr), {kInvalid, {"lengths"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_reset(nullptr), {kInvalid, {"cache"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_view(nullptr, &view, &view), {kInvalid, {"cache"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_view(cache_.cache(), nullptr, &view), {kInvalid, {"k"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_view(cache_.cache(), &view, nullptr), {kInvalid, {"v"}}), "");
    EXPECT_EQ(cache, nullptr);
    EXPECT_EQ(view.data, nullptr);
    EXPECT_EQ(lengths[0], 7);
}

TEST_F(CacheErrors, Append) {
    using T = hattn_tensor;
    EXPECT_EQ(append_refused([](T &k, T &) { k.data = nullptr; }, {kInvalid, {"k"}}), "");
    EXPECT_EQ(append_refused([](T &, T &v) { v.data = nullptr; }, {kInvalid, {"v"}}), "");
    EXPECT_EQ(append_refused([](T &k, T &) { k.dtype = HATTN_INT8; }, {kInvalid, {"k", "int8"}}), "");
    EXPECT_EQ(append_refused([](T &, T &v) { v.dtype = HATTN_INT32; }, {kInvalid, {"v"}}), "");
    EXPECT_EQ(append_refused([](T &k, T &) { k.device = HATTN_CUDA; }, {HATTN_NOT_SUPPORTED, {"k"}}), "");
    EXPECT_EQ(append_refused([](T &k, T &) { k.struct_size = 0; }, {kInvalid, {"k", "struct_size", "0"}}), "");
    EXPECT_EQ(append_refused([](T &k, T &) { k.extent[0] = 1; }, {kInvalid, {"k", "1", "2"}}), "");
    EXPECT_EQ(append_refused([](T &k, T &) { k.extent[1] = 2; }, {kInvalid, {"k", "2", "3"}}), "");
    EXPECT_EQ(append_refused([](T &k, T &) { k.extent[2] = -1; }, {kInvalid, {"k", "-1"}}), "");
    EXPECT_EQ(append_refused([](T &k, T &) { k.extent[3] = 7; }, {kInvalid, {"k", "7", "8"}}), "");
    EXPECT_EQ(append_refused([](T &, T &v) { v.extent[0] = 3; }, {kInvalid, {"v", "3", "2"}}), "");
    EXPECT_EQ(append_refused([](T &, T &v) { v.extent[1] = 1; }, {kInvalid, {"v", "1", "3"}}), "");
    EXPECT_EQ(append_refused([](T &, T &v) { v.extent[2] = 3; }, {kInvalid, {"v", "3", "4"}}), "");
    EXPECT_EQ(append_refused([](T &, T &v) { v.extent[3] = 8; }, {kInvalid, {"v", "8", "4"}}), "");
    EXPECT_EQ(append_refused([](T &k, T &) { k.stride[3] = 2; }, {kInvalid, {"k", "2"}}), "");
    EXPECT_EQ(append_refused([](T &, T &v) { v.stride[3] = 0; }, {kInvalid, {"v", "0"}}), "");
    EXPECT_EQ(append_refused([](T &k, T &) { k.stride[0] = std::numeric_limits<int64_t>::max() - 1; },
                             {HATTN_OVERFLOW, {"k"}}),
              "");
    EXPECT_EQ(append_refused([](T &k, T &) { k.stride[2] = (int64_t{1} << 23) + 1; },
                             {HATTN_NOT_SUPPORTED, {"k: stride[2]", "8388609", "8388608"}}),
              "");
}

// Of either side: what is written first would be read as what is appended.
TEST_F(CacheErrors, AppendFromTheCacheItself) {
    hattn_tensor keys = HATTN_TENSOR_INIT, values = HATTN_TENSOR_INIT;
    ASSERT_EQ(hattn_kv_cache_view(cache_.cache(), &keys, &values), HATTN_OK);
    for (const hattn_tensor &side : {keys, values}) {
        hattn_tensor k = k_.view, v = v_.view;
        k.data = side.data;
        EXPECT_EQ(refused(hattn_kv_append(cache_.cache(), &k, &v_.view, nullptr),
                          {kInvalid, {"k: its memory", "overlaps that of the cache"}}),
                  "");
        v.data = side.data;
        EXPECT_EQ(refused(hattn_kv_append(cache_.cache(), &k_.view, &v, nullptr),
                          {kInvalid, {"v: its memory", "overlaps that of the cache"}}),
                  "");
    }
}

TEST_F(CacheErrors, AppendLengths) {
    auto append = [&](std::vector<int32_t> lengths) {
        return hattn_kv_append(cache_.cache(), &k_.view, &v_.view, lengths.data());
    };
    EXPECT_EQ(refused(append({-1, 2}), {kInvalid, {"lengths", "-1", "4"}}), "");
    EXPECT_EQ(refused(append({0, 5}), {kInvalid, {"lengths", "5", "4"}}), "");
    cases::TensorData k = cases::make_tensor(HATTN_FLOAT32, {2, 3, 5, 8});
    cases::TensorData v = cases::make_tensor(HATTN_FLOAT32, {2, 3, 5, 4});
    EXPECT_EQ(
        refused(hattn_kv_append(cache_.cache(), &k.view, &v.view, nullptr), {HATTN_CAPACITY_EXCEEDED, {"11", "10"}}),
        "");
}

TEST_F(CacheErrors, Truncate) {
    auto truncate = [&](std::vector<int32_t> lengths) {
        return hattn_kv_cache_truncate(cache_.cache(), lengths.data());
    };
    EXPECT_EQ(refused(truncate({6, 3}), {kInvalid, {"lengths", "3", "2"}}), "");
    EXPECT_EQ(refused(truncate({0, -1}), {kInvalid, {"lengths", "-1", "2"}}), "");
}

TEST_F(CacheErrors, Fork) {
    auto fork = [&](int64_t from, int64_t to, int64_t length) {
        return hattn_kv_cache_fork(cache_.cache(), from, to, length);
    };
    EXPECT_EQ(refused(hattn_kv_cache_fork(nullptr, 0, 1, -1), {kInvalid, {"cache"}}), "");
    EXPECT_EQ(refused(fork(-1, 1, -1), {kInvalid, {"from", "-1", "2"}}), "");
    EXPECT_EQ(refused(fork(0, 2, -1), {kInvalid, {"to", "2"}}), "");
    EXPECT_EQ(refused(fork(1, 1, -1), {kInvalid, {"to", "1", "from"}}), "");
    EXPECT_EQ(refused(fork(0, 1, 7), {kInvalid, {"length", "7", "6"}}), "");
    EXPECT_EQ(refused(fork(0, 1, -2), {kInvalid, {"length", "-2", "6"}}), "");
}

TEST_F(CacheErrors, Pages) {
    int64_t used = 7, available = 7, stride = 7;
    const int32_t *table = nullptr;
    hattn_kv_cache *cache = cache_.cache();
    EXPECT_EQ(refused(hattn_kv_cache_pages(nullptr, &used, &available), {kInvalid, {"cache"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_pages(cache, nullptr, &available), {kInvalid, {"used"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_pages(cache, &used, nullptr), {kInvalid, {"available"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_pages(cache, &used, &available), {kInvalid, {"cache", "page_size", "0"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_block_table(nullptr, &table, &stride), {kInvalid, {"cache"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_block_table(cache, nullptr, &stride), {kInvalid, {"table"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_block_table(cache, &table, nullptr), {kInvalid, {"stride"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_block_table(cache, &table, &stride), {kInvalid, {"cache", "page_size", "0"}}), "");
    EXPECT_EQ(used + available + stride, 21);
    EXPECT_EQ(table, nullptr);
}

TEST_F(CacheErrors, AppendRope) {
    hattn_rope rope;
    hattn_rope_init(&rope);
    rope.rotary_dim = 10;
    auto append = [&] { return hattn_kv_append_rope(cache_.cache(), &k_.view, &v_.view, nullptr, &rope); };
    EXPECT_EQ(refused(append(), {kInvalid, {"rotary_dim", "10", "8"}}), "");
    rope.rotary_dim = 0;
    rope.struct_size = 8;
    EXPECT_EQ(refused(append(), {kInvalid, {"rope.struct_size", "8"}}), "");
}

TEST_F(CacheErrors, AppendPacked) {
    cases::TensorData k = cases::make_tensor(HATTN_FLOAT32, {1, 3, 5, 8});
    cases::TensorData v = cases::make_tensor(HATTN_FLOAT32, {1, 3, 5, 4});
    auto append = [&](const hattn_tensor &keys, std::array<int32_t, 3> ends, const Refusal &refusal) {
        return refused(hattn_kv_append_packed(cache_.cache(), &keys, &v.view, ends.data(), nullptr), refusal);
    };
    EXPECT_EQ(append(k_.view, {0, 2, 4}, {kInvalid, {"k", "batch", "2", "1"}}), "");
    EXPECT_EQ(append(k.view, {1, 2, 5}, {kInvalid, {"cu_seqlens[0]", "1", "0"}}), "");
    EXPECT_EQ(append(k.view, {0, 6, 5}, {kInvalid, {"cu_seqlens[2]", "5", "6"}}), "");
    EXPECT_EQ(append(k.view, {0, 2, 4}, {kInvalid, {"cu_seqlens[2]", "4", "k has 5"}}), "");
    EXPECT_EQ(append(k.view, {0, 5, 5}, {HATTN_CAPACITY_EXCEEDED, {"sequence 0", "6", "11", "10"}}), "");
    EXPECT_EQ(refused(hattn_kv_append_packed(cache_.cache(), &k.view, &v.view, nullptr, nullptr),
                      {kInvalid, {"cu_seqlens", "null"}}),
              "");
}

TEST_F(CacheErrors, RopeApply) {
    hattn_rope rope;
    hattn_rope_init(&rope);
    hattn_kv_cache *const cache = cache_.cache();  // of 6 and 2 keys
    cases::TensorData x = cases::make_tensor(HATTN_FLOAT32, {2, 5, 3, 8}), out = x;
    const auto turn = [&](const hattn_tensor &from, const hattn_tensor &to, const int32_t *lengths = nullptr) {
        return hattn_kv_rope_apply(cache, &rope, &from, &to, lengths);
    };
    EXPECT_EQ(refused(hattn_kv_rope_apply(nullptr, &rope, &x.view, &out.view, nullptr), {kInvalid, {"cache"}}), "");
    EXPECT_EQ(refused(hattn_kv_rope_apply(cache, nullptr, &x.view, &out.view, nullptr), {kInvalid, {"rope"}}), "");
    EXPECT_EQ(refused(hattn_kv_rope_apply(cache, &rope, nullptr, &out.view, nullptr), {kInvalid, {"x"}}), "");
    EXPECT_EQ(refused(hattn_kv_rope_apply(cache, &rope, &x.view, nullptr, nullptr), {kInvalid, {"out"}}), "");
    EXPECT_EQ(refused(turn(x.view, x.view), {kInvalid, {"x: sequence 1 has 3 rows", "the cache has 2 keys"}}), "");
    const int32_t many[2] = {3, 4}, few[2] = {3, 2};
    EXPECT_EQ(refused(turn(x.view, x.view, many), {kInvalid, {"lengths[1]", "4", "3"}}), "");
    EXPECT_EQ(turn(x.view, x.view, few), HATTN_OK);
    hattn_tensor wrong = x.view;
    wrong.extent[0] = 1;
    EXPECT_EQ(refused(turn(wrong, wrong), {kInvalid, {"x: extent[0] (batch) is 1", "the cache's batch is 2"}}), "");
    wrong = x.view;
    wrong.extent[3] = 4;
    EXPECT_EQ(refused(turn(wrong, wrong), {kInvalid, {"x: extent[3]", "4", "the cache's head dimension is 8"}}), "");
    EXPECT_EQ(refused(turn(x.view, wrong), {kInvalid, {"out: extent[3]", "4", "8"}}), "");
    wrong = x.view;
    wrong.device = HATTN_OPENCL;
    EXPECT_EQ(refused(turn(wrong, wrong), {kInvalid, {"x: is on opencl:0, but the cache is on cpu"}}), "");

    hattn_tensor keys = HATTN_TENSOR_INIT, values = HATTN_TENSOR_INIT;
    ASSERT_EQ(hattn_kv_cache_view(cache, &keys, &values), HATTN_OK);
    wrong = x.view;
    wrong.data = keys.data;
    EXPECT_EQ(refused(turn(x.view, wrong, few), {kInvalid, {"out: its memory", "overlaps that of the cache"}}), "");

    const int32_t positions[6] = {0, 1, 2, 3, 4, -5}, ends[3] = {0, 2, 3};
    rope.positions = positions;
    rope.positions_stride = 3;
    EXPECT_EQ(refused(turn(x.view, x.view), {kInvalid, {"rope.positions", "row 2 of sequence 1", "-5"}}), "");
    EXPECT_EQ(turn(x.view, x.view, few), HATTN_OK);  // which sees the key at any position
    rope.positions = nullptr;
    hattn_tensor packed = x.view;
    const auto turn_packed = [&](const int32_t *cu_seqlens) {
        return hattn_kv_rope_apply_packed(cache, &rope, &packed, &packed, cu_seqlens);
    };
    EXPECT_EQ(refused(turn_packed(ends), {kInvalid, {"x: extent[0]", "2", "the batch of packed queries is 1"}}), "");
    packed.extent[0] = 1;
    EXPECT_EQ(refused(turn_packed(nullptr), {kInvalid, {"cu_seqlens", "null"}}), "");
    EXPECT_EQ(turn_packed(ends), HATTN_OK);
    const int32_t back[3] = {0, 3, 2}, all_of_second[3] = {0, 0, 3};
    EXPECT_EQ(refused(turn_packed(back), {kInvalid, {"cu_seqlens[2]", "2", "3"}}), "");
    EXPECT_EQ(refused(turn_packed(all_of_second), {kInvalid, {"x: sequence 1 has 3 rows", "2 keys"}}), "");
}

TEST_F(CacheErrors, Bind) {
    hattn_attention_desc desc;
    hattn_attention_desc_init(&desc);
    hattn_attention_args args;
    hattn_attention_args_init(&args);
    desc.batch = 2;
    EXPECT_EQ(refused(hattn_kv_cache_bind(nullptr, &desc, &args), {kInvalid, {"cache"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_bind(cache_.cache(), nullptr, &args), {kInvalid, {"desc"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_bind(cache_.cache(), &desc, nullptr), {kInvalid, {"args"}}), "");
    desc.batch = 3;
    EXPECT_EQ(refused(hattn_kv_cache_bind(cache_.cache(), &desc, &args), {kInvalid, {"batch", "3", "2"}}), "");
    EXPECT_EQ(desc.kv_heads, 0);
    EXPECT_EQ(args.k.data, nullptr);
    args.struct_size = 3;
    EXPECT_EQ(refused(hattn_kv_cache_bind(cache_.cache(), &desc, &args), {kInvalid, {"args.struct_size", "3"}}), "");
}

TEST_F(CacheErrors, Attend) {
    cases::Case c;
    c.name = "wrong_attend";
    c.batch = 2;
    c.query_heads = 6;
    c.kv_heads = 3;
    c.query_length = 2;
    c.kv_length = 6;
    c.key_dim = 8;
    c.value_dim = 4;
    c.bias = cases::varying("k");
    cases::Problem problem(c);
    problem.args.k = problem.args.v = HATTN_TENSOR_INIT;
    auto attend = [&](hattn_attention_desc desc, hattn_attention_args args, const Refusal &refusal) {
        std::string text = refused(hattn_kv_cache_attend(cache_.cache(), &desc, &args), refusal);
        return problem.outputs_untouched() ? text : text + "; outputs were written";
    };
    hattn_attention_desc desc = problem.desc;
    hattn_attention_args args = problem.args;
    EXPECT_EQ(refused(hattn_kv_cache_attend(nullptr, &desc, &args), {kInvalid, {"cache"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_attend(cache_.cache(), nullptr, &args), {kInvalid, {"desc"}}), "");
    EXPECT_EQ(refused(hattn_kv_cache_attend(cache_.cache(), &desc, nullptr), {kInvalid, {"args"}}), "");
    args.bias.extent[3] = 10;  // the capacity, but the longest sequence has 6
    EXPECT_EQ(attend(desc, args, {kInvalid, {"bias", "10", "6"}}), "");
    args = problem.args;
    args.q.extent[3] = 16;
    EXPECT_EQ(attend(desc, args, {kInvalid, {"q", "16", "8"}}), "");
    args = problem.args;
    desc.query_heads = 7;
    EXPECT_EQ(attend(desc, args, {kInvalid, {"query_heads", "7", "3"}}), "");
    desc = problem.desc;
    desc.batch = 1;
    EXPECT_EQ(attend(desc, args, {kInvalid, {"batch", "1", "2"}}), "");
}

TEST_F(CacheErrors, MemoryRunsOut) {
    hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
    desc.allocate = [](void *, size_t bytes, size_t) -> void * {
        return bytes > (1u << 20) ? nullptr : std::malloc(bytes);
    };
    desc.deallocate = [](void *, void *memory) { std::free(memory); };
    test::NewContext created = test::new_context("", &desc);
    ASSERT_TRUE(created.outcome.ok()) << created.outcome.text();
    hattn_kv_cache_desc large = test::cache_desc(4, 8, 4096, 128, 128);
    hattn_kv_cache *cache = nullptr;
    EXPECT_EQ(hattn_kv_cache_create(created.context.get(), &large, &cache), HATTN_OUT_OF_MEMORY);
    EXPECT_EQ(cache, nullptr);
}

}  // namespace
