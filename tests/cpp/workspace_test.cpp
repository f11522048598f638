// The workspace is bounded whatever the lengths are, belongs to one execute, and is all the memory an execute takes.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ostream>
#include <thread>

#include "support/heap_counter.h"
#include "support/run.h"
#include "support/workspace.h"

namespace {

using namespace hattn;

cases::Case base(int64_t query_length, int64_t kv_length) {
    cases::Case c;
    c.name = "workspace_" + std::to_string(query_length) + "_" + std::to_string(kv_length);
    c.batch = 2;
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = query_length;
    c.kv_length = kv_length;
    c.key_dim = c.value_dim = 32;
    c.causal = true;
    return c;
}

class WorkspaceOf : public testing::TestWithParam<hattn_algorithm> {
protected:
    size_t bytes_for(int64_t query_length, int64_t kv_length, int32_t threads = 2,
                     hattn_scores scores = HATTN_SCORES_NONE) {
        hattn_attention_desc desc;
        hattn_attention_desc_init(&desc);
        desc.batch = 1;
        desc.query_heads = desc.kv_heads = 2;
        desc.query_length = query_length;
        desc.kv_length = kv_length;
        desc.key_dim = desc.value_dim = 128;
        desc.threads = threads;
        desc.scores = scores;
        desc.algorithm = GetParam();
        test::PlanPtr plan = test::make_plan(context_.get(), desc);
        size_t bytes = 0;
        EXPECT_EQ(hattn_plan_workspace_size(plan.get(), &bytes), HATTN_OK);
        return bytes;
    }

    test::ContextPtr context_ = test::make_context();
};

// Room for tasks, partial states and a tile per thread: a small part of what the inputs take, where the scores would be
// 16 times the inputs.
TEST_P(WorkspaceOf, IsASmallPartOfTheInputs) {
    if (GetParam() == HATTN_ALGORITHM_NAIVE) {
        GTEST_SKIP() << "naive holds scores by design";
    }
    constexpr int64_t kLong = 32768;
    constexpr size_t kBytesPerKey = 2 * 2 * 128 * sizeof(float);  // two heads, k and v
    EXPECT_LT(bytes_for(kLong, kLong), kLong * kBytesPerKey / 4);
    EXPECT_LT(bytes_for(512, int64_t{1} << 24), (size_t{1} << 24) * kBytesPerKey / 100);
    EXPECT_LT(bytes_for(1, int64_t{1} << 24), (size_t{1} << 24) * kBytesPerKey / 100);
}

TEST_P(WorkspaceOf, ServesAnyLengthUpToTheCapacity) {
    hattn_attention_desc desc = cases::desc_of(base(70, 800));
    desc.algorithm = GetParam();
    test::PlanPtr plan = test::make_plan(context_.get(), desc);
    for (auto [query_length, kv_length] :
         {std::pair<int64_t, int64_t>{70, 800}, {1, 800}, {70, 1}, {1, 1}, {33, 600}, {0, 5}}) {
        test::Prepared data(base(query_length, kv_length));
        test::Outcome outcome = test::execute(plan.get(), data.problem.args);  // with canaries around the workspace
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        EXPECT_EQ(cases::difference(data.problem, data.expected), "") << cases::describe(data.problem.spec);
    }
}

TEST_P(WorkspaceOf, WhatItHeldDoesNotMatter) {
    cases::Problem problem(base(9, 600));
    hattn_attention_desc desc = problem.desc;
    desc.algorithm = GetParam();
    test::PlanPtr plan = test::make_plan(context_.get(), desc);
    size_t bytes = 0;
    ASSERT_EQ(hattn_plan_workspace_size(plan.get(), &bytes), HATTN_OK);
    std::vector<float> reference;
    for (int fill : {0x00, 0xff, 0x7f}) {
        test::Workspace workspace(bytes);
        if (bytes > 0) {
            std::memset(workspace.data(), fill, bytes);
        }
        workspace.give_to(problem.args);
        problem.fill_outputs();
        ASSERT_EQ(hattn_plan_execute(plan.get(), &problem.args), HATTN_OK);
        std::vector<float> values = test::output_values(problem);
        reference = reference.empty() ? values : reference;
        EXPECT_TRUE(test::same_bits(values, reference)) << fill;
    }
}

TEST_P(WorkspaceOf, TwoThreadsExecuteOnePlanAtOnce) {
    constexpr int kRounds = 20;
    test::Prepared first(base(40, 300)), second(base(1, 900));
    hattn_attention_desc desc = cases::desc_of(base(40, 900));
    desc.algorithm = GetParam();
    test::PlanPtr plan = test::make_plan(context_.get(), desc);
    std::string failures[2];
    auto work = [&plan](test::Prepared &data, std::string &failure) {
        for (int round = 0; round < kRounds && failure.empty(); ++round) {
            data.problem.fill_outputs();
            test::Outcome outcome = test::execute(plan.get(), data.problem.args);
            failure = outcome.ok() ? cases::difference(data.problem, data.expected) : outcome.text();
        }
    };
    std::thread other(work, std::ref(first), std::ref(failures[0]));
    work(second, failures[1]);
    other.join();
    EXPECT_EQ(failures[0], "");
    EXPECT_EQ(failures[1], "");
}

struct Counts {
    std::atomic<int> allocations{0};
    std::atomic<int> frees{0};
};

void *counted_allocate(void *user, size_t bytes, size_t alignment) {
    ++static_cast<Counts *>(user)->allocations;
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void counted_free(void *user, void *memory) {
    ++static_cast<Counts *>(user)->frees;
    std::free(memory);
}

TEST_P(WorkspaceOf, ExecuteAllocatesNothing) {
    Counts counts;
    hattn_context_desc context_desc = HATTN_CONTEXT_DESC_INIT;
    context_desc.threads = 2;
    context_desc.allocate = counted_allocate;
    context_desc.deallocate = counted_free;
    context_desc.allocator_user = &counts;
    test::NewContext created = test::new_context("", &context_desc);
    ASSERT_TRUE(created.outcome.ok()) << created.outcome.text();
    std::vector<cases::Case> all = {base(1, 900), base(50, 130)};
    for (cases::Case &c : all) {
        c.bias = cases::varying("bhqk");
        c.mask = cases::varying("qk");
    }
    // What the rule gives to naive, with all keys at once.
    all.push_back(base(8, 512));
    all.back().query_heads = all.back().kv_heads;
    all.back().key_dim = all.back().value_dim = 128;
    for (const cases::Case &c : all) {
        cases::Problem problem(c);
        hattn_attention_desc desc = problem.desc;
        desc.algorithm = GetParam();
        test::PlanPtr plan = test::make_plan(created.context.get(), desc);
        size_t bytes = 0;
        ASSERT_EQ(hattn_plan_workspace_size(plan.get(), &bytes), HATTN_OK);
        test::Workspace workspace(bytes);
        workspace.give_to(problem.args);
        ASSERT_EQ(hattn_plan_execute(plan.get(), &problem.args), HATTN_OK);  // starts the thread pool
        int before = counts.allocations;
        uint64_t heap_before = test::heap_allocations();
        hattn_status status = hattn_plan_execute(plan.get(), &problem.args);
        uint64_t heap_after = test::heap_allocations();
        EXPECT_EQ(status, HATTN_OK);
        EXPECT_EQ(counts.allocations, before);
        EXPECT_EQ(heap_after - heap_before, 0u);
    }
    created.context.reset();
    EXPECT_EQ(counts.allocations, counts.frees);
}

TEST(Allocator, IsUsedAndGivenBackByTheOneShotCallAndTheCache) {
    Counts counts;
    hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
    desc.allocate = counted_allocate;
    desc.deallocate = counted_free;
    desc.allocator_user = &counts;
    test::NewContext created = test::new_context("", &desc);
    ASSERT_TRUE(created.outcome.ok()) << created.outcome.text();
    test::Prepared data(base(6, 50));
    int before = counts.allocations;
    ASSERT_EQ(hattn_attention(created.context.get(), &data.problem.desc, &data.problem.args), HATTN_OK);
    EXPECT_EQ(cases::difference(data.problem, data.expected), "");
    EXPECT_GT(counts.allocations, before);
    hattn_kv_cache_desc cache_desc;
    hattn_kv_cache_desc_init(&cache_desc);
    cache_desc.batch = cache_desc.kv_heads = 1;
    cache_desc.capacity = cache_desc.key_dim = 16;
    before = counts.allocations;
    hattn_kv_cache *cache = nullptr;
    ASSERT_EQ(hattn_kv_cache_create(created.context.get(), &cache_desc, &cache), HATTN_OK);
    EXPECT_GT(counts.allocations, before);
    hattn_kv_cache_destroy(cache);
    created.context.reset();
    EXPECT_EQ(counts.allocations, counts.frees);
}

INSTANTIATE_TEST_SUITE_P(All, WorkspaceOf, testing::ValuesIn(test::kAlgorithms),
                         [](const testing::TestParamInfo<hattn_algorithm> &run) {
                             return test::algorithm_name(run.param);
                         });

}  // namespace
