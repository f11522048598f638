// The KV cache and RoPE through hattn.hpp: what it forwards, and what it throws.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "hattn/hattn.hpp"

namespace {

constexpr std::int64_t kBatch = 2, kHeads = 2, kRows = 5, kDim = 4;

class CppCache : public testing::Test {
protected:
    CppCache() {
        desc_.batch = kBatch;
        desc_.kv_heads = kHeads;
        desc_.capacity = 40;
        desc_.key_dim = kDim;
        desc_.page_size = 16;
        desc_.page_count = 3;
        std::iota(rows_.begin(), rows_.end(), 1.0f);
    }

    hattn_tensor tensor(std::vector<float> &memory) const {
        return hattn::bhsd(memory.data(), {kBatch, kHeads, kRows, kDim});
    }

    hattn::Context context_;
    hattn::KvCacheDesc desc_;
    std::vector<float> rows_ = std::vector<float>(kBatch * kHeads * kRows * kDim);
};

TEST_F(CppCache, PagesForksAndViews) {
    hattn::KvCache cache(context_, desc_);
    const std::int32_t lengths[] = {5, 2};
    cache.append(tensor(rows_), tensor(rows_), lengths);
    EXPECT_EQ(cache.pages().used, 2);
    cache.fork(0, 1);
    EXPECT_EQ(cache.lengths(), (std::vector<std::int32_t>{5, 5}));
    EXPECT_EQ(cache.pages().used, 1);
    EXPECT_EQ(cache.pages().available, 2);
    cache.fork(1, 0, 3);
    EXPECT_EQ(cache.lengths(), (std::vector<std::int32_t>{3, 5}));
    const hattn::KvCache::BlockTable table = cache.block_table();
    EXPECT_EQ(table.stride, 3);
    EXPECT_EQ((std::vector<std::int32_t>(table.data, table.data + 6)),
              (std::vector<std::int32_t>{0, -1, -1, 0, -1, -1}));
    EXPECT_EQ(static_cast<const float *>(cache.view().k.data)[0], 1.0f);

    hattn::AttentionDesc desc;
    hattn::AttentionArgs args;
    desc.batch = kBatch;
    cache.bind(desc, args);
    EXPECT_EQ(desc.kv_heads, kHeads);
    EXPECT_EQ(desc.kv_length, 40);
    EXPECT_EQ(desc.page_size, 16);
    EXPECT_EQ(args.block_table, table.data);
    EXPECT_EQ(args.block_table_stride, 3);
    EXPECT_EQ(args.kv_lengths[1], 5);
    EXPECT_EQ(args.k.extent[0], 3);
}

// Three rows of the first sequence and two of the second, packed, as keys and then as queries.
TEST_F(CppCache, PackedRows) {
    const std::int32_t ends[] = {0, 3, kRows};
    const hattn_tensor packed = hattn::bhsd(rows_.data(), {1, kHeads, kRows, kDim});
    hattn::KvCache cache(context_, desc_);
    cache.append_packed(packed, packed, ends);
    EXPECT_EQ(cache.lengths(), (std::vector<std::int32_t>{3, 2}));

    std::vector<float> together(kHeads * kRows * kDim), alone(together.size());
    hattn::AttentionDesc desc;
    desc.batch = kBatch;
    desc.query_heads = kHeads;
    desc.query_length = 3;
    desc.packed_queries = kRows;
    desc.causal = 1;
    hattn::AttentionArgs args;
    args.q = packed;
    args.out = hattn::bhsd(together.data(), {1, kHeads, kRows, kDim});
    args.cu_seqlens_q = ends;
    cache.attend(desc, args);

    desc = {};
    desc.batch = 1;
    desc.query_heads = desc.kv_heads = kHeads;
    desc.key_dim = desc.value_dim = kDim;
    desc.causal = 1;
    for (const auto &[first, count] : {std::pair(ends[0], 3), std::pair(ends[1], 2)}) {
        hattn_tensor rows = packed, out = hattn::bhsd(alone.data(), {1, kHeads, kRows, kDim});
        rows.data = rows_.data() + first * kDim;
        out.data = alone.data() + first * kDim;
        rows.extent[2] = out.extent[2] = desc.query_length = desc.kv_length = count;
        hattn::AttentionArgs one;
        one.q = one.k = one.v = rows;
        one.out = out;
        context_.attention(desc, one);
    }
    EXPECT_EQ(together, alone);
}

TEST_F(CppCache, AppendTurnsKeysAsRopeApplyDoes) {
    hattn::Rope rope;
    rope.base = 100.0;
    std::vector<float> turned(rows_.size());
    context_.rope_apply(rope, tensor(rows_), tensor(turned));
    EXPECT_NEAR(turned[kDim], rows_[kDim] * std::cos(1.0) - rows_[kDim + 2] * std::sin(1.0), 1e-6);
    hattn::KvCache cache(context_, desc_);
    cache.append(tensor(rows_), tensor(rows_), nullptr, &rope);
    const auto [k, v] = cache.view();
    const auto *key = static_cast<const float *>(k.data), *value = static_cast<const float *>(v.data);
    EXPECT_EQ(std::vector<float>(key, key + kRows * kDim),
              std::vector<float>(turned.begin(), turned.begin() + kRows * kDim));
    EXPECT_EQ(std::vector<float>(value, value + kRows * kDim),
              std::vector<float>(rows_.begin(), rows_.begin() + kRows * kDim));
}

// Three rows of the first sequence and two of the second, padded and packed, which are their last ones.
TEST_F(CppCache, QueriesAreTurnedToTheirPlaces) {
    const std::int32_t lengths[] = {3, 2}, ends[] = {0, 3, kRows}, offsets[] = {kRows - 3, kRows - 2};
    hattn::Rope rope;
    std::vector<float> turned(rows_.size()), expected(rows_.size()), queries(rows_);
    hattn::KvCache cache(context_, desc_);
    cache.append(tensor(rows_), tensor(rows_), nullptr, &rope);
    context_.rope_apply(rope, tensor(rows_), tensor(expected), offsets, lengths);
    cache.rope_apply(rope, tensor(rows_), tensor(turned), lengths);
    EXPECT_EQ(turned, expected);

    hattn_tensor packed = hattn::bhsd(queries.data(), {1, kHeads, kRows, kDim});
    for (int h = 0; h < kHeads; ++h) {
        for (int i = 0; i < kRows; ++i) {
            const int b = i < 3 ? 0 : 1, row = i - ends[b];
            std::copy_n(&rows_[((b * kHeads + h) * kRows + row) * kDim], kDim, &queries[(h * kRows + i) * kDim]);
        }
    }
    cache.rope_apply_packed(rope, packed, packed, ends);
    for (int h = 0; h < kHeads; ++h) {
        for (int i = 0; i < kRows; ++i) {
            const int b = i < 3 ? 0 : 1, row = i - ends[b];
            for (int d = 0; d < kDim; ++d) {
                EXPECT_EQ(queries[(h * kRows + i) * kDim + d], expected[((b * kHeads + h) * kRows + row) * kDim + d]);
            }
        }
    }
}

TEST_F(CppCache, RefusalsAreErrors) {
    hattn::KvCache cache(context_, desc_);
    const auto status_of = [](auto call) {
        try {
            call();
        } catch (const hattn::Error &error) {
            return error.status();
        }
        return HATTN_OK;
    };
    EXPECT_EQ(status_of([&] { cache.fork(0, 0); }), HATTN_INVALID_ARGUMENT);
    for (int n = 0; n < 3; ++n) {
        cache.append(tensor(rows_), tensor(rows_));
    }
    EXPECT_EQ(status_of([&] { cache.append(tensor(rows_), tensor(rows_)); }), HATTN_CAPACITY_EXCEEDED);
    hattn::Rope rope;
    rope.rotary_dim = 6;
    EXPECT_EQ(status_of([&] { context_.rope_apply(rope, tensor(rows_), tensor(rows_)); }), HATTN_INVALID_ARGUMENT);
    desc_.page_size = desc_.page_count = 0;
    hattn::KvCache contiguous(context_, desc_);
    EXPECT_EQ(status_of([&] { contiguous.pages(); }), HATTN_INVALID_ARGUMENT);
    EXPECT_EQ(status_of([&] { contiguous.block_table(); }), HATTN_INVALID_ARGUMENT);
}

TEST(CppContext, SaysWhatIsWrongWithItsTunings) {
    hattn::ContextDesc desc;
    desc.tuning_database = "none";
    EXPECT_EQ(hattn::Context(desc).warning(), "");
    const std::string path = testing::TempDir() + "no_database_" + std::to_string(getpid()) + ".json";
    std::ofstream(path) << "{";
    desc.tuning_database = path.c_str();
    const std::string warning = hattn::Context(desc).warning();
    EXPECT_NE(warning.find(path), std::string::npos) << warning;
    std::remove(path.c_str());
}

TEST(CppViews, OfTypesThatHaveNoneInCpp) {
    const std::vector<std::uint16_t> rows(2 * 3 * 5 * 8);
    const hattn_tensor halves = hattn::bhsd(rows.data(), HATTN_BFLOAT16, {2, 3, 5, 8});
    EXPECT_EQ(halves.dtype, HATTN_BFLOAT16);
    EXPECT_EQ(std::vector<std::int64_t>(halves.stride, halves.stride + 4), (std::vector<std::int64_t>{120, 40, 8, 1}));
    const hattn_tensor by_token = hattn::bshd(rows.data(), HATTN_FLOAT16, {2, 3, 5, 8});
    EXPECT_EQ(std::vector<std::int64_t>(by_token.extent, by_token.extent + 4), (std::vector<std::int64_t>{2, 3, 5, 8}));
    EXPECT_EQ(std::vector<std::int64_t>(by_token.stride, by_token.stride + 4),
              (std::vector<std::int64_t>{120, 8, 24, 1}));
    const hattn_tensor nibbles = hattn::bhsd(rows.data(), HATTN_INT4, {1, 2, 3, 7});  // rows of four bytes
    EXPECT_EQ(nibbles.extent[3], 7);
    EXPECT_EQ(std::vector<std::int64_t>(nibbles.stride, nibbles.stride + 4), (std::vector<std::int64_t>{48, 24, 8, 1}));
}

}  // namespace
