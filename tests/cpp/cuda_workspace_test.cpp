// Executes on CUDA with workspaces of the application's, of the driver in stub_cuda: every kind of problem fits them,
// and nothing else is taken nor waited for.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "support/case_param.h"
#include "support/cuda_execute.h"
#include "support/stored_types.h"

namespace {

using namespace hattn;
using test::Execute;
using test::ExecuteOf;
using test::in_stream;
using test::new_context;
using test::new_stream;
using test::some_keys;

using CudaWorkspace = test::CudaQueue;

TEST_F(CudaWorkspace, AnExecuteTakesNoMemoryAndWaitsForNothing) {
    // Its tables, if there are any, go in one copy, whatever memory of the device alone there is: of log-sum-exps,
    // states, weights.
    for (const auto &[rows, algorithm, launches, copies] :
         {std::tuple(100, HATTN_ALGORITHM_FLASH, 1u, 1u), std::tuple(3000, HATTN_ALGORITHM_FLASH, 1u, 1u),
          std::tuple(1, HATTN_ALGORITHM_SPLIT_KV, 2u, 1u), std::tuple(3, HATTN_ALGORITHM_NAIVE, 2u, 1u),
          std::tuple(3, HATTN_ALGORITHM_UNFUSED, 3u, 1u)}) {
        Execute execute(some_keys(rows), algorithm);
        void *const stream = new_stream(new_context(0));
        ASSERT_TRUE(execute.run(stream).ok());  // loads kernels
        start_log();
        ASSERT_TRUE(execute.run(stream).ok());
        for (const std::string &line : log_lines()) {
            EXPECT_TRUE(line.starts_with("upload ") || line.starts_with("launch ")) << line;
            EXPECT_NE(line.find(in_stream(stream)), std::string::npos) << line;
        }
        EXPECT_EQ(log_lines("launch").size(), launches);
        EXPECT_EQ(log_lines("upload").size(), copies) << test::algorithm_name(algorithm);
        unsetenv("HATTN_STUB_CUDA_LOG");
        EXPECT_EQ(execute.run(stream).allocations, 0u);
    }
}

TEST_F(CudaWorkspace, EveryCaseFitsItsWorkspaces) {
    void *const stream = new_stream(new_context(0));
    for (const test::CaseParam &param : test::case_params(test::device_supports)) {
        for (const hattn_algorithm algorithm : test::kDeviceAlgorithms) {
            Execute execute(*param.spec, algorithm);
            ASSERT_TRUE(execute.run(stream).ok()) << param.spec->name;
            const test::Outcome outcome = execute.run(stream);
            EXPECT_TRUE(outcome.ok()) << outcome.text();
            EXPECT_EQ(outcome.allocations, 0u) << param.spec->name << " " << test::algorithm_name(algorithm);
        }
    }
}

TEST_F(CudaWorkspace, EveryTypeFitsItsWorkspaces) {
    void *const stream = new_stream(new_context(0));
    for (const test::CaseParam &param : test::case_params(
             [](const cases::Case &c) { return test::device_supports(c) && c.work() <= cases::kSmallWork / 4; })) {
        const uint64_t turn = param.spec->seed();
        const cases::StoredTypes &types = test::kStoredTypes[turn % std::size(test::kStoredTypes)];
        const hattn_algorithm algorithm =
            test::kDeviceAlgorithms[turn / std::size(test::kStoredTypes) % std::size(test::kDeviceAlgorithms)];
        ExecuteOf<cases::TypedProblem> execute(algorithm, 0, nullptr, *param.spec, types);
        ASSERT_TRUE(execute.run(stream).ok()) << param.spec->name << " " << types.name;
        const test::Outcome outcome = execute.run(stream);
        EXPECT_TRUE(outcome.ok()) << outcome.text();
        EXPECT_EQ(outcome.allocations, 0u) << param.spec->name << " " << types.name;
    }
}

TEST_F(CudaWorkspace, PagesAndRingsFitTheirWorkspaces) {
    constexpr int64_t kRows = 37;
    void *const stream = new_stream(new_context(0));
    for (const auto &[page_size, window] : {std::pair(16, 0), std::pair(0, 40)}) {
        cases::Case c = some_keys(1);
        c.batch = 2;
        c.kv_length = kRows;
        c.window_left = window - 1;
        const test::ContextPtr context = test::make_context();
        hattn_kv_cache_desc desc;
        hattn_kv_cache_desc_init(&desc);
        desc.batch = c.batch;
        desc.kv_heads = c.kv_heads;
        desc.capacity = 5 * kRows;
        desc.key_dim = c.key_dim;
        desc.page_size = page_size;
        desc.window = window;
        hattn_kv_cache *made = nullptr;
        ASSERT_EQ(hattn_kv_cache_create(context.get(), &desc, &made), HATTN_OK);
        const test::CachePtr cache(made);
        const cases::Problem rows(c);
        for (int i = 0; i < (window > 0 ? 8 : 5); ++i) {  // a ring wraps around
            ASSERT_EQ(hattn_kv_append(cache.get(), &rows.args.k, &rows.args.v, nullptr), HATTN_OK);
            for (const hattn_algorithm algorithm : test::kDeviceAlgorithms) {
                Execute execute(c, algorithm, 0, cache.get());
                ASSERT_TRUE(execute.run(stream).ok());
                EXPECT_EQ(execute.run(stream).allocations, 0u) << page_size << " " << window << " " << i;
            }
        }
    }
}

// Units of decode, and where keys side by side are, kernels compute from what a launch tells them: in float32 no more
// is copied than scales of 1, on tensor cores nothing.
TEST_F(CudaWorkspace, DecodeCopiesNoTables) {
    void *const stream = new_stream(new_context(0));
    const auto bytes_of = [&](const cases::StoredTypes &types, int64_t keys) {
        cases::Case c = some_keys(1);
        c.kv_length = keys;
        ExecuteOf<cases::TypedProblem> execute(HATTN_ALGORITHM_SPLIT_KV, 0, nullptr, c, types);
        EXPECT_TRUE(execute.run(stream).ok()) << types.name;
        start_log();
        EXPECT_TRUE(execute.run(stream).ok()) << types.name;
        const std::vector<std::string> uploads = log_lines("upload bytes=");
        EXPECT_LE(uploads.size(), 1u);
        return uploads.empty() ? 0 : std::stol(uploads[0].substr(std::string("upload bytes=").size()));
    };
    constexpr int64_t kFew = 1024, kMany = 16384, kGranule = 16;
    const cases::StoredTypes whole = {"float32", HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32};
    EXPECT_EQ(bytes_of(whole, kMany), bytes_of(whole, kFew));
    for (const cases::StoredTypes &types : {test::kStoredTypes[0], test::kStoredTypes[1]}) {
        EXPECT_EQ(bytes_of(types, kFew), 0) << types.name;
        EXPECT_EQ(bytes_of(types, kMany), 0) << types.name;
    }
    // Keys and values of two types have no loops of their own: their kernels look up where both are.
    const cases::StoredTypes mixed = {"mixed", HATTN_FLOAT32, HATTN_BFLOAT16, HATTN_FLOAT16, HATTN_FLOAT32};
    EXPECT_GE(bytes_of(mixed, kMany) - bytes_of(mixed, kFew),
              2 * (kMany - kFew) / kGranule * static_cast<int64_t>(sizeof(int32_t)));
}

}  // namespace
