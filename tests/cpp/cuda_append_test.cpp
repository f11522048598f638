// Appends to caches on CUDA, of the driver in stub_cuda, whose kernels compute nothing: what they take, wait for and
// leave in the stream.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "support/cuda_execute.h"
#include "support/handles.h"

namespace {

using namespace hattn;
using test::Execute;
using test::in_stream;
using test::new_context;
using test::new_stream;

using CudaAppend = test::CudaQueue;

constexpr int kSlots = 4;  // memories on the host that take turns
constexpr int64_t kBatch = 2, kHeads = 2, kDim = 64;

// A cache and rows for it, which are, as far as the stub is concerned, memory of a GPU.
struct Appends {
    Appends(void *stream, hattn_dtype keys, hattn_dtype given, int64_t page_size = 16, int64_t window = 0)
        : memory(static_cast<size_t>(kBatch * kHeads * kMostRows * kDim)) {
        hattn_kv_cache_desc desc;
        hattn_kv_cache_desc_init(&desc);
        desc.batch = kBatch;
        desc.kv_heads = kHeads;
        desc.capacity = 640;
        desc.key_dim = kDim;
        desc.dtype = keys;
        desc.page_size = page_size;
        desc.window = window;
        desc.device = HATTN_CUDA;
        queue.queue = stream;
        desc.queue = stream ? &queue : nullptr;
        hattn_kv_cache *made = nullptr;
        EXPECT_EQ(hattn_kv_cache_create(context.get(), &desc, &made), HATTN_OK) << hattn_last_error(nullptr);
        cache.reset(made);
        rows = HATTN_TENSOR_INIT;
        rows.data = memory.data();
        rows.device = HATTN_CUDA;
        rows.dtype = given;
    }

    hattn_status append(int64_t count = 1, const hattn_rope *rope = nullptr) {
        const int64_t extent[4] = {kBatch, kHeads, count, kDim};
        int64_t stride = 1;
        for (int d = 3; d >= 0; --d) {
            rows.extent[d] = extent[d];
            rows.stride[d] = stride;
            stride *= extent[d];
        }
        return hattn_kv_append_rope(cache.get(), &rows, &rows, nullptr, rope);
    }

    static constexpr int64_t kMostRows = 100;
    const test::ContextPtr context = test::make_context();
    hattn_queue queue = HATTN_QUEUE_INIT;
    test::CachePtr cache;
    std::vector<float> memory;
    hattn_tensor rows;
};

hattn_rope some_rope() {
    hattn_rope rope;
    hattn_rope_init(&rope);
    return rope;
}

TEST_F(CudaAppend, TakesNoMemoryAndWaitsForNothing) {
    const hattn_rope rope = some_rope();
    for (const auto &[page_size, window] : {std::pair(0, 0), std::pair(16, 0), std::pair(0, 40)}) {
        for (const auto &[keys, given] :
             {std::pair(HATTN_FLOAT32, HATTN_FLOAT32), std::pair(HATTN_FLOAT16, HATTN_FLOAT32),
              std::pair(HATTN_FLOAT16, HATTN_FLOAT16), std::pair(HATTN_INT8, HATTN_FLOAT32),
              std::pair(HATTN_INT4, HATTN_BFLOAT16)}) {
            for (const hattn_rope *turned : {static_cast<const hattn_rope *>(nullptr), &rope}) {
                void *const stream = new_stream(new_context(0));
                Appends appends(stream, keys, given, page_size, window);
                for (int i = 0; i < kSlots; ++i) {
                    ASSERT_EQ(appends.append(3, turned), HATTN_OK) << hattn_last_error(nullptr);
                }
                start_log();
                for (int i = 0; i < 20; ++i) {  // several pages
                    ASSERT_EQ(appends.append(3, turned), HATTN_OK) << hattn_last_error(nullptr);
                }
                for (const std::string &line : log_lines()) {
                    EXPECT_TRUE(line.starts_with("upload ") || line.starts_with("launch ")) << line;
                    EXPECT_NE(line.find(in_stream(stream)), std::string::npos) << line;
                }
                EXPECT_GE(log_lines("launch").size(), 40u);
                unsetenv("HATTN_STUB_CUDA_LOG");
                const uint64_t before = test::heap_allocations();
                ASSERT_EQ(appends.append(1, turned), HATTN_OK);
                EXPECT_EQ(test::heap_allocations(), before) << page_size << " " << window << " " << keys;
            }
        }
    }
}

TEST_F(CudaAppend, ForksAndCopiesOfPagesWaitForNothing) {
    for (const int page_size : {0, 16}) {
        Appends appends(new_stream(new_context(0)), HATTN_INT8, HATTN_BFLOAT16, page_size);
        const auto fork_and_append = [&] {
            ASSERT_EQ(appends.append(3), HATTN_OK);
            ASSERT_EQ(hattn_kv_cache_fork(appends.cache.get(), 0, 1, -1), HATTN_OK) << hattn_last_error(nullptr);
        };
        for (int i = 0; i < 2 * kSlots; ++i) {
            fork_and_append();
        }
        start_log();
        fork_and_append();
        fork_and_append();
        EXPECT_TRUE(log_lines("wait").empty()) << log_lines("wait").front();
        EXPECT_GT(log_lines("launch").size(), 8u) << "nothing was copied";
    }
}

TEST_F(CudaAppend, QueriesAreTurnedWithoutMemoryOrWaits) {
    const hattn_rope rope = some_rope();
    void *const stream = new_stream(new_context(0));
    Appends appends(stream, HATTN_FLOAT16, HATTN_FLOAT32);
    std::vector<float> others(appends.memory.size());
    for (const bool in_place : {false, true}) {
        const auto append_and_turn = [&] {
            ASSERT_EQ(appends.append(3, &rope), HATTN_OK) << hattn_last_error(nullptr);
            hattn_tensor out = appends.rows;
            out.data = in_place ? out.data : others.data();
            ASSERT_EQ(hattn_kv_rope_apply(appends.cache.get(), &rope, &appends.rows, &out, nullptr), HATTN_OK)
                << hattn_last_error(nullptr);
        };
        for (int i = 0; i < kSlots; ++i) {
            append_and_turn();
        }
        start_log();
        for (int i = 0; i < kSlots; ++i) {
            append_and_turn();
        }
        for (const std::string &line : log_lines()) {
            EXPECT_TRUE(line.starts_with("upload ") || line.starts_with("launch ")) << line;
            EXPECT_NE(line.find(in_stream(stream)), std::string::npos) << line;
        }
        // Of an append one for keys and one for values; in place queries are turned beside, and then stored.
        EXPECT_EQ(log_lines("launch").size(), size_t{kSlots} * (in_place ? 4 : 3));
        unsetenv("HATTN_STUB_CUDA_LOG");
    }
}

TEST_F(CudaAppend, RowsOfTheHostAreWaitedForOnce) {
    void *const stream = new_stream(new_context(0));
    Appends appends(stream, HATTN_INT8, HATTN_BFLOAT16);
    appends.rows.device = HATTN_CPU;
    ASSERT_EQ(appends.append(), HATTN_OK);
    start_log();
    ASSERT_EQ(appends.append(), HATTN_OK);
    EXPECT_EQ(log_lines("wait").size(), 1u);
    EXPECT_EQ(log_lines().back(), "wait " + in_stream(stream));
}

TEST_F(CudaAppend, HostMemoryIsUsedAgainOnceTheStreamHasReadIt) {
    Appends appends(new_stream(new_context(0)), HATTN_FLOAT16, HATTN_FLOAT32);
    ASSERT_EQ(appends.append(), HATTN_OK);
    setenv("HATTN_STUB_CUDA_FAIL", "cuEventQuery", 1);
    start_log();
    for (int i = 1; i < kSlots; ++i) {
        ASSERT_EQ(appends.append(), HATTN_OK) << hattn_last_error(nullptr);
    }
    EXPECT_TRUE(log_lines("wait").empty());
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(appends.append(), HATTN_OK) << hattn_last_error(nullptr);
    }
    EXPECT_EQ(log_lines("wait event").size(), 3u);
    EXPECT_EQ(log_lines("wait").size(), 3u);
}

TEST_F(CudaAppend, MemoryGrowsOnceNothingUsesIt) {
    void *const stream = new_stream(new_context(0));
    Appends appends(stream, HATTN_INT8, HATTN_BFLOAT16);
    ASSERT_EQ(appends.append(1), HATTN_OK);
    start_log();
    ASSERT_EQ(appends.append(Appends::kMostRows), HATTN_OK);
    ASSERT_EQ(log_lines("wait").size(), 1u);
    const std::vector<std::string> lines = log_lines();
    const auto waits = std::find(lines.begin(), lines.end(), "wait " + in_stream(stream));
    const auto uses = [](const std::string &line) { return line.starts_with("upload") || line.starts_with("launch"); };
    EXPECT_TRUE(std::none_of(lines.begin(), waits, uses));
    for (int i = 0; i < kSlots; ++i) {
        ASSERT_EQ(appends.append(Appends::kMostRows), HATTN_OK);
    }
    start_log();
    ASSERT_EQ(appends.append(1), HATTN_OK);
    ASSERT_EQ(appends.append(Appends::kMostRows), HATTN_OK);
    EXPECT_TRUE(log_lines("allocate").empty());
    EXPECT_TRUE(log_lines("wait").empty());
}

TEST_F(CudaAppend, ErrorsAreStatusesAndLeaveNothingInTheStream) {
    for (const auto &[function, status] :
         {std::pair("cuMemAlloc", HATTN_OUT_OF_MEMORY), std::pair("cuMemAllocHost", HATTN_OUT_OF_MEMORY),
          std::pair("cuLaunchKernel", HATTN_INTERNAL_ERROR)}) {
        void *const stream = new_stream(new_context(0));
        Appends appends(stream, HATTN_INT8, HATTN_BFLOAT16);
        setenv("HATTN_STUB_CUDA_FAIL", function, 1);
        start_log();
        EXPECT_EQ(appends.append(), status) << function << ": " << hattn_last_error(nullptr);
        EXPECT_NE(std::string(hattn_last_error(nullptr)).find(function), std::string::npos)
            << hattn_last_error(nullptr);
        if (!log_lines("upload").empty()) {
            EXPECT_EQ(log_lines().back(), "wait " + in_stream(stream)) << function;
        }
        unsetenv("HATTN_STUB_CUDA_FAIL");
        int32_t lengths[kBatch] = {-1, -1};
        ASSERT_EQ(hattn_kv_cache_lengths(appends.cache.get(), lengths), HATTN_OK);
        EXPECT_EQ(lengths[0], 0) << function;
        EXPECT_EQ(appends.append(), HATTN_OK) << function << ": " << hattn_last_error(nullptr);
    }
}

std::vector<int32_t> pages_of(const Appends &appends) {
    const int32_t *table = nullptr;
    int64_t stride = 0, used = 0, available = 0;
    EXPECT_EQ(hattn_kv_cache_block_table(appends.cache.get(), &table, &stride), HATTN_OK);
    EXPECT_EQ(hattn_kv_cache_pages(appends.cache.get(), &used, &available), HATTN_OK);
    std::vector<int32_t> pages(table, table + kBatch * stride);
    pages.push_back(static_cast<int32_t>(used));
    return pages;
}

TEST_F(CudaAppend, SequencesShareTheirPagesAgainAfterAFailure) {
    for (const auto &[function, given] :
         {std::pair("cuLaunchKernel", HATTN_BFLOAT16), std::pair("cuMemAllocHost", HATTN_FLOAT32)}) {
        Appends appends(new_stream(new_context(0)), HATTN_FLOAT32, HATTN_FLOAT32);
        ASSERT_EQ(appends.append(4), HATTN_OK) << hattn_last_error(nullptr);
        ASSERT_EQ(hattn_kv_cache_fork(appends.cache.get(), 0, 1, -1), HATTN_OK) << hattn_last_error(nullptr);
        const std::vector<int32_t> shared = pages_of(appends);
        ASSERT_EQ(shared.back(), 1);
        setenv("HATTN_STUB_CUDA_FAIL", function, 1);
        appends.rows.dtype = given;
        // Of more memory on the host than the append before took.
        ASSERT_NE(appends.append(Appends::kMostRows), HATTN_OK) << function;
        EXPECT_EQ(pages_of(appends), shared) << function;
        unsetenv("HATTN_STUB_CUDA_FAIL");
        ASSERT_EQ(appends.append(1), HATTN_OK) << hattn_last_error(nullptr);
        EXPECT_EQ(pages_of(appends).back(), 2) << function;
    }
}

// Some of its rows may be another's.
TEST_F(CudaAppend, AForkThatFailsLeavesItsTargetEmpty) {
    Appends appends(new_stream(new_context(0)), HATTN_FLOAT32, HATTN_FLOAT32, 0);
    ASSERT_EQ(appends.append(4), HATTN_OK);
    setenv("HATTN_STUB_CUDA_FAIL", "cuLaunchKernel", 1);
    EXPECT_EQ(hattn_kv_cache_fork(appends.cache.get(), 0, 1, 3), HATTN_INTERNAL_ERROR);
    int32_t lengths[kBatch] = {-1, -1};
    ASSERT_EQ(hattn_kv_cache_lengths(appends.cache.get(), lengths), HATTN_OK);
    EXPECT_EQ(lengths[0], 4);
    EXPECT_EQ(lengths[1], 0);
}

TEST_F(CudaAppend, AttentionInAnotherStreamComesAfterIt) {
    void *const context = new_context(0), *const stream = new_stream(context), *const other = new_stream(context);
    Appends appends(stream, HATTN_FLOAT32, HATTN_FLOAT32);
    hattn_attention_desc desc;
    hattn_attention_desc_init(&desc);
    desc.batch = kBatch;
    desc.query_heads = kHeads;
    desc.query_length = 1;
    hattn_attention_args args;
    hattn_attention_args_init(&args);
    hattn_queue queue = HATTN_QUEUE_INIT;
    args.queue = &queue;
    for (void *const of_attention : {stream, other}) {
        ASSERT_EQ(appends.append(), HATTN_OK);
        args.q = args.out = appends.rows;
        std::vector<float> out(appends.memory.size());
        args.out.data = out.data();
        queue.queue = of_attention;
        start_log();
        ASSERT_EQ(hattn_kv_cache_attend(appends.cache.get(), &desc, &args), HATTN_OK) << hattn_last_error(nullptr);
        const std::vector<std::string> lines = log_lines();
        EXPECT_EQ(std::count(lines.begin(), lines.end(), "wait " + in_stream(stream)), 1);
        EXPECT_EQ(lines.front() == "wait " + in_stream(stream), of_attention == other);
    }
}

TEST_F(CudaAppend, ThreadsAppendInStreamsOfTheirOwn) {
    constexpr int kThreads = 4, kTimes = 8;
    start_log();
    std::vector<std::thread> threads;
    std::array<hattn_status, kThreads> statuses = {};
    std::vector<void *> streams;
    for (int t = 0; t < kThreads; ++t) {
        streams.push_back(new_stream(new_context(0)));
        threads.emplace_back([stream = streams.back(), status = &statuses[static_cast<size_t>(t)]] {
            Appends appends(stream, HATTN_FLOAT16, HATTN_FLOAT32);
            for (int i = 0; i < kTimes && *status == HATTN_OK; ++i) {
                *status = appends.append();
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(statuses, (std::array<hattn_status, kThreads>{}));
    for (void *stream : streams) {
        const std::vector<std::string> lines = log_lines("launch");
        EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                                [&](const std::string &line) { return line.ends_with(in_stream(stream)); }),
                  2 * kTimes);
    }
}

}  // namespace
