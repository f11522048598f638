// The KV cache against a model of it, and attention over it against attention over the same keys elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <ranges>
#include <stdexcept>
#include <string>

#include "compare.h"
#include "input_data.h"
#include "packed_problem.h"
#include "support/cache_model.h"
#include "support/heap_counter.h"
#include "support/refusal.h"
#include "support/run.h"

namespace {

using namespace hattn;
using test::CacheModel;

// Queries for a cache, and the same attention over the model's keys.
struct Attend {
    Attend(const CacheModel &cache, int64_t rows, int64_t ratio, uint64_t seed) {
        spec.name = "attend_" + std::to_string(seed);
        spec.batch = cache.desc().batch;
        spec.kv_heads = cache.desc().kv_heads;
        spec.query_heads = ratio * spec.kv_heads;
        spec.query_length = rows;
        spec.kv_length = cache.longest();
        spec.key_dim = cache.desc().key_dim;
        spec.value_dim = cache.value_dim();
        spec.kv_lengths = cache.lengths();
        spec.causal = true;
    }

    // Through the cache, then over copies of the keys: equal to the bit, and within the oracle's bound.
    void check(hattn_context *context, const CacheModel &cache) const {
        SCOPED_TRACE(cases::describe(spec));
        cases::Problem problem(spec);
        problem.k = cache.keys();
        problem.v = cache.values();
        problem.bind();
        test::Outcome outcome = test::outcome_of(hattn_attention(context, &problem.desc, &problem.args), context);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        EXPECT_EQ(cases::difference(problem, cases::evaluate(problem.desc, problem.args)), "");
        std::vector<float> elsewhere = test::output_values(problem);

        problem.fill_outputs();
        hattn_attention_args args = problem.args;
        hattn_attention_desc desc = problem.desc;
        args.k = args.v = HATTN_TENSOR_INIT;
        args.kv_lengths = nullptr;
        desc.kv_length = desc.kv_heads = desc.key_dim = desc.value_dim = 0;  // the cache knows
        outcome = test::outcome_of(hattn_kv_cache_attend(cache.cache(), &desc, &args), context);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        EXPECT_TRUE(test::same_bits(test::output_values(problem), elsewhere));
    }

    cases::Case spec;
};

class KvCache : public testing::Test {
protected:
    test::ContextPtr context_ = test::make_context();
    cases::Random random_{20240229};
};

TEST_F(KvCache, StartsEmpty) {
    CacheModel cache(context_.get(), test::cache_desc(3, 2, 10, 8, 0));
    EXPECT_EQ(cache.difference(), "");
    Attend(cache, 4, 2, 0).check(context_.get(), cache);
}

TEST_F(KvCache, ViewIsTheWholeStorage) {
    CacheModel cache(context_.get(), test::cache_desc(2, 3, 10, 8, 5));
    hattn_tensor k = HATTN_TENSOR_INIT, v = HATTN_TENSOR_INIT;
    ASSERT_EQ(hattn_kv_cache_view(cache.cache(), &k, &v), HATTN_OK);
    EXPECT_EQ(cases::extents_of(k), (cases::Extents{2, 3, 10, 8}));
    EXPECT_EQ(cases::extents_of(v), (cases::Extents{2, 3, 10, 5}));
    EXPECT_EQ(k.stride[3], 1);
    EXPECT_EQ(v.stride[3], 1);
    EXPECT_EQ(k.dtype, HATTN_FLOAT32);
    EXPECT_NE(k.data, v.data);
}

TEST_F(KvCache, PrefillThenDecode) {
    CacheModel cache(context_.get(), test::cache_desc(2, 2, 80, 16, 24));
    ASSERT_TRUE(cache.append(70, {}, random_).ok());
    Attend(cache, 70, 3, 1).check(context_.get(), cache);
    for (int step = 0; step < 10; ++step) {
        ASSERT_TRUE(cache.append(1, {}, random_, cases::Layout::kBshd).ok());
        EXPECT_EQ(cache.difference(), "");
        Attend(cache, 1, 3, 2).check(context_.get(), cache);
    }
    EXPECT_EQ(cache.append(1, {}, random_).status, HATTN_CAPACITY_EXCEEDED);
}

TEST_F(KvCache, OptionsApplyToTheLongestSequence) {
    CacheModel cache(context_.get(), test::cache_desc(3, 2, 64, 16, 0));
    ASSERT_TRUE(cache.append(40, {40, 0, 17}, random_).ok());
    Attend attend(cache, 5, 2, 3);
    attend.spec.bias = cases::varying("bhqk");
    attend.spec.mask = cases::varying("qk");
    attend.spec.scores = HATTN_SCORES_PROBABILITIES;
    attend.spec.sinks = cases::Sinks::kNormal;
    attend.spec.alibi = true;
    attend.spec.q_lengths = {5, 2, 3};
    attend.check(context_.get(), cache);
}

// Prefill of one sequence and decoding of another in one call.
TEST_F(KvCache, PackedQueries) {
    CacheModel cache(context_.get(), test::cache_desc(3, 2, 700, 16, 0));
    ASSERT_TRUE(cache.append(640, {640, 0, 60}, random_).ok());
    Attend attend(cache, 60, 2, 4);
    attend.spec.q_lengths = {1, 0, 60};
    cases::Problem padded(attend.spec);
    padded.k = cache.keys();
    padded.v = cache.values();
    padded.bind();
    cases::PackedProblem packed(padded, cases::PackedKeys::kNo);
    const hattn_status status = hattn_kv_cache_attend(cache.cache(), &packed.desc, &packed.args);
    ASSERT_TRUE(test::outcome_of(status, context_.get()).ok()) << hattn_last_error(context_.get());
    for (int64_t b : {0, 2}) {
        const cases::PackedProblem::Alone alone = packed.alone(b);
        const cases::Expected expected = cases::evaluate(alone.desc, alone.args);
        EXPECT_EQ(cases::difference("out", alone.args.out, expected.out, expected.out_bound), "") << b;
    }
}

TEST_F(KvCache, AppendIsAllOrNothing) {
    CacheModel cache(context_.get(), test::cache_desc(3, 1, 20, 4, 0));
    ASSERT_TRUE(cache.append(15, {15, 3, 9}, random_).ok());
    test::Outcome outcome = cache.append(12, {0, 12, 12}, random_);  // the third sequence would have 21
    EXPECT_EQ(outcome.status, HATTN_CAPACITY_EXCEEDED);
    EXPECT_EQ(cache.difference(), "");
    EXPECT_TRUE(cache.append(11, {5, 11, 11}, random_).ok());
    EXPECT_EQ(cache.difference(), "");
}

// A row that does not belong to a sequence must not be written behind it.
TEST_F(KvCache, AppendWritesOnlyTheNewRows) {
    CacheModel cache(context_.get(), test::cache_desc(2, 2, 12, 4, 6));
    ASSERT_TRUE(cache.append(10, {10, 8}, random_).ok());
    ASSERT_TRUE(cache.truncate({4, 5}).ok());
    hattn_tensor k = HATTN_TENSOR_INIT, v = HATTN_TENSOR_INIT;
    ASSERT_EQ(hattn_kv_cache_view(cache.cache(), &k, &v), HATTN_OK);
    std::vector<float> k_before = cases::dense_floats(k), v_before = cases::dense_floats(v);
    ASSERT_TRUE(cache.append(3, {1, 0}, random_).ok());
    std::vector<float> k_after = cases::dense_floats(k), v_after = cases::dense_floats(v);
    // By their bits: rows that nobody has written hold anything, NaNs too.
    const auto changed = [](const std::vector<float> &before, const std::vector<float> &after) {
        return std::ranges::count_if(std::views::iota(size_t{0}, before.size()), [&](size_t i) {
            return std::bit_cast<uint32_t>(before[i]) != std::bit_cast<uint32_t>(after[i]);
        });
    };
    EXPECT_EQ(changed(k_before, k_after) + changed(v_before, v_after), 2 * (4 + 6));  // one row of two heads
    EXPECT_EQ(cache.difference(), "");
}

TEST_F(KvCache, TruncateAndReset) {
    CacheModel cache(context_.get(), test::cache_desc(2, 1, 30, 8, 0));
    ASSERT_TRUE(cache.append(20, {20, 11}, random_).ok());
    ASSERT_TRUE(cache.truncate({7, 11}).ok());
    EXPECT_EQ(cache.difference(), "");
    ASSERT_TRUE(cache.append(5, {}, random_).ok());
    EXPECT_EQ(cache.difference(), "");
    Attend(cache, 3, 4, 4).check(context_.get(), cache);
    ASSERT_TRUE(cache.truncate({0, 0}).ok());
    EXPECT_EQ(cache.difference(), "");
    ASSERT_TRUE(cache.append(30, {}, random_).ok());
    ASSERT_TRUE(cache.reset().ok());
    EXPECT_EQ(cache.difference(), "");
    ASSERT_TRUE(cache.append(30, {}, random_).ok());
    EXPECT_EQ(cache.difference(), "");
}

TEST_F(KvCache, NothingToAppend) {
    CacheModel cache(context_.get(), test::cache_desc(2, 1, 5, 8, 0));
    EXPECT_TRUE(cache.append(0, {}, random_).ok());
    EXPECT_TRUE(cache.append(3, {0, 0}, random_).ok());
    EXPECT_EQ(cache.difference(), "");
}

TEST_F(KvCache, EmptyBatch) {
    CacheModel cache(context_.get(), test::cache_desc(0, 2, 5, 8, 0));
    EXPECT_TRUE(cache.append(2, {}, random_).ok());
    EXPECT_TRUE(cache.reset().ok());
}

// Whatever the storage, once there is a cache, nothing is taken from the heap.
TEST_F(KvCache, AppendForkAndTruncateAllocateNothing) {
    for (int kind = 0; kind < 3; ++kind) {
        hattn_kv_cache_desc desc = test::cache_desc(8, 4, 64, 32, 0);
        desc.page_size = kind == 1 ? 16 : 0;
        desc.window = kind == 2 ? 40 : 0;
        test::CachePtr cache = test::make_cache(context_.get(), desc);
        cases::TensorData k = cases::make_tensor(HATTN_FLOAT32, {8, 4, 5, 32});
        cases::fill_normal(k.view, 1);
        hattn_rope rope;
        hattn_rope_init(&rope);
        const std::vector<int32_t> kept(8, 6);
        const uint64_t before = test::heap_allocations();
        for (int step = 0; step < 2; ++step) {
            EXPECT_EQ(hattn_kv_append(cache.get(), &k.view, &k.view, nullptr), HATTN_OK);
            EXPECT_EQ(hattn_kv_append_rope(cache.get(), &k.view, &k.view, nullptr, &rope), HATTN_OK);
            EXPECT_EQ(hattn_kv_cache_fork(cache.get(), 0, 1, -1), HATTN_OK);
            EXPECT_EQ(hattn_kv_append(cache.get(), &k.view, &k.view, nullptr), HATTN_OK);
            EXPECT_EQ(hattn_kv_cache_truncate(cache.get(), kept.data()), HATTN_OK);
        }
        EXPECT_EQ(test::heap_allocations(), before);
    }
}

// Pages and forks through the C interface; tests/python/test_cache_storage.py has the many random ones.
TEST_F(KvCache, PagesAndForks) {
    hattn_kv_cache_desc desc = test::cache_desc(3, 2, 100, 8, 6);
    desc.page_size = 32;
    desc.page_count = 6;
    test::CachePtr cache = test::make_cache(context_.get(), desc);
    cases::TensorData k = cases::make_tensor(HATTN_FLOAT32, {3, 2, 40, 8});
    cases::TensorData v = cases::make_tensor(HATTN_FLOAT32, {3, 2, 40, 6});
    cases::fill_normal(k.view, 1);
    cases::fill_normal(v.view, 2);
    const std::vector<int32_t> counts = {40, 0, 7};
    ASSERT_EQ(hattn_kv_append(cache.get(), &k.view, &v.view, counts.data()), HATTN_OK);
    ASSERT_EQ(hattn_kv_cache_fork(cache.get(), 0, 1, 35), HATTN_OK);
    int64_t used = 0, available = 0, stride = 0;
    const int32_t *table = nullptr;
    ASSERT_EQ(hattn_kv_cache_pages(cache.get(), &used, &available), HATTN_OK);
    EXPECT_EQ(used, 3);
    EXPECT_EQ(available, 3);
    ASSERT_EQ(hattn_kv_cache_block_table(cache.get(), &table, &stride), HATTN_OK);
    EXPECT_EQ(stride, 4);
    EXPECT_EQ((std::vector<int32_t>(table, table + 12)),
              (std::vector<int32_t>{0, 1, -1, -1, 0, 1, -1, -1, 2, -1, -1, -1}));
    hattn_tensor keys = HATTN_TENSOR_INIT, values = HATTN_TENSOR_INIT;
    ASSERT_EQ(hattn_kv_cache_view(cache.get(), &keys, &values), HATTN_OK);
    EXPECT_EQ(cases::extents_of(keys), (cases::Extents{6, 2, 32, 8}));
    EXPECT_EQ(cases::element<float>(keys, 1, 1, 7, 3), cases::element<float>(k.view, 0, 1, 39, 3));
    EXPECT_EQ(cases::element<float>(values, 2, 1, 6, 5), cases::element<float>(v.view, 2, 1, 6, 5));
    EXPECT_EQ(hattn_kv_append(cache.get(), &k.view, &v.view, nullptr), HATTN_CAPACITY_EXCEEDED);
    ASSERT_EQ(hattn_kv_cache_reset(cache.get()), HATTN_OK);
    ASSERT_EQ(hattn_kv_cache_pages(cache.get(), &used, &available), HATTN_OK);
    EXPECT_EQ(used, 0);
    EXPECT_EQ(available, 6);
}

// What /proc/self/smaps calls the VmFlags of the memory at an address (Linux: Documentation/filesystems/proc.rst).
std::string memory_flags(const void *address) {
    std::ifstream smaps("/proc/self/smaps");
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    bool is_inside = false;
    for (std::string line; std::getline(smaps, line);) {
        uintptr_t begin = 0, end = 0;
        if (std::sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2) {
            is_inside = begin <= wanted && wanted < end;
        } else if (is_inside && line.starts_with("VmFlags:")) {
            return line + " ";
        }
    }
    return "";
}

TEST_F(KvCache, LargePoolsAskForHugePages) {
    if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) {
        GTEST_SKIP() << "this system has no huge pages";
    }
    constexpr uintptr_t kHugePage = 1u << 21;
    for (const int64_t page_size : {0, 16}) {
        hattn_kv_cache_desc desc = test::cache_desc(1, 8, 2048, 128, 128);  // 8 MiB of keys
        desc.page_size = page_size;
        test::CachePtr cache = test::make_cache(context_.get(), desc);
        hattn_tensor keys = HATTN_TENSOR_INIT, values = HATTN_TENSOR_INIT;
        ASSERT_EQ(hattn_kv_cache_view(cache.get(), &keys, &values), HATTN_OK);
        for (const hattn_tensor &side : {keys, values}) {
            const bool asked = memory_flags(side.data).find(" hg ") != std::string::npos;
            EXPECT_EQ(asked, page_size > 0) << memory_flags(side.data);
            if (page_size > 0) {
                EXPECT_EQ(reinterpret_cast<uintptr_t>(side.data) % kHugePage, 0u);
            }
        }
    }
}

// Sequences of operations that no one would write by hand.
TEST_F(KvCache, RandomSequences) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        cases::Random random(seed);
        int64_t batch = random.integer(1, 4), capacity = random.integer(1, 300);
        CacheModel cache(context_.get(), test::cache_desc(batch, random.integer(1, 3), capacity, random.integer(1, 40),
                                                          random.integer(0, 40)));
        for (int step = 0; step < 12; ++step) {
            std::vector<int32_t> counts;
            int64_t action = random.integer(0, 9);
            int64_t rows = random.integer(0, capacity / 2 + 1);
            for (int32_t length : cache.lengths()) {
                counts.push_back(static_cast<int32_t>(random.integer(0, action < 8 ? rows : length)));
            }
            bool fits = true;
            for (size_t b = 0; b < counts.size(); ++b) {
                fits = fits && cache.lengths()[b] + counts[b] <= capacity;
            }
            if (action < 8) {
                EXPECT_EQ(cache.append(rows, counts, random).status, fits ? HATTN_OK : HATTN_CAPACITY_EXCEEDED);
            } else if (action == 8) {
                EXPECT_TRUE(cache.truncate(counts).ok());
            } else {
                EXPECT_TRUE(cache.reset().ok());
            }
            ASSERT_EQ(cache.difference(), "") << "step " << step;
            Attend(cache, random.integer(1, 6), random.integer(1, 4), seed * 100).check(context_.get(), cache);
        }
    }
}

// The callback may not throw; if it does, no page is lost.
TEST(KvCachePages, AreNotLostToACallbackThatThrows) {
    hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
    desc.threads = 2;
    desc.parallel_for = [](void *, int32_t, void (*)(void *, int32_t), void *) {
        throw std::runtime_error("no threads");
    };
    const test::ContextPtr context = test::new_context("", &desc).context;
    ASSERT_TRUE(context);
    hattn_kv_cache_desc paged = test::cache_desc(4, 4, 512, 64, 64);
    paged.page_size = 16;
    paged.page_count = 200;
    const test::CachePtr cache = test::make_cache(context.get(), paged);
    cases::TensorData rows = cases::make_tensor(HATTN_FLOAT32, {4, 4, 200, 64});
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(test::mismatch(
                      test::outcome_of(hattn_kv_append(cache.get(), &rows.view, &rows.view, nullptr), context.get()),
                      test::Refusal{HATTN_INTERNAL_ERROR, {"no threads"}}),
                  "");
        int64_t used = -1, available = -1;
        ASSERT_EQ(hattn_kv_cache_pages(cache.get(), &used, &available), HATTN_OK);
        EXPECT_EQ(used, 0);
        EXPECT_EQ(available, 200);
    }
}

// Some of what replaces older keys of a ring may have been written.
TEST(KvCacheRings, ForgetKeysThatACallbackWasToReplace) {
    bool throws = false;
    hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
    desc.threads = 2;
    desc.parallel_for_user = &throws;
    desc.parallel_for = [](void *user, int32_t count, void (*work)(void *, int32_t), void *closure) {
        if (*static_cast<bool *>(user)) {
            throw std::runtime_error("no threads");
        }
        for (int32_t i = 0; i < count; ++i) {
            work(closure, i);
        }
    };
    const test::ContextPtr context = test::new_context("", &desc).context;
    ASSERT_TRUE(context);
    hattn_kv_cache_desc ring = test::cache_desc(4, 16, 64, 64, 64);
    ring.window = 64;
    const test::CachePtr cache = test::make_cache(context.get(), ring);
    cases::TensorData rows = cases::make_tensor(HATTN_FLOAT32, {4, 16, 64, 64});
    ASSERT_EQ(hattn_kv_append(cache.get(), &rows.view, &rows.view, nullptr), HATTN_OK)
        << hattn_last_error(context.get());

    const auto may_see = [&](int64_t keys) {
        cases::Case spec;
        spec.name = "sees";
        spec.batch = 4;
        spec.query_heads = spec.kv_heads = 16;
        spec.query_length = 1;
        spec.kv_length = 64;
        spec.key_dim = spec.value_dim = 64;
        spec.causal = true;
        spec.window_left = keys - 1;
        cases::Problem problem(spec);
        problem.args.k = problem.args.v = HATTN_TENSOR_INIT;
        return hattn_kv_cache_bind(cache.get(), &problem.desc, &problem.args);
    };
    EXPECT_EQ(may_see(64), HATTN_OK);
    throws = true;
    cases::TensorData more = cases::make_tensor(HATTN_FLOAT32, {4, 16, 20, 64});
    EXPECT_EQ(hattn_kv_append(cache.get(), &more.view, &more.view, nullptr), HATTN_INTERNAL_ERROR);
    EXPECT_EQ(may_see(64), HATTN_INVALID_ARGUMENT);
    EXPECT_EQ(may_see(45), HATTN_INVALID_ARGUMENT);
    EXPECT_EQ(may_see(44), HATTN_OK);
    throws = false;
    EXPECT_EQ(hattn_kv_append(cache.get(), &more.view, &more.view, nullptr), HATTN_OK);
    EXPECT_EQ(may_see(64), HATTN_OK);
}

}  // namespace
