// Appends to a cache and attention over it in one stream of the emulated GPU, without a wait between them: what the
// launches leave each other, and whether they race.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "number_formats.h"
#include "support/cuda_execute.h"
#include "support/handles.h"

namespace {

using namespace hattn;
using test::driver;
using test::new_context;
using test::new_stream;

using CacheStream = test::CudaQueue;
using DevicePointer = unsigned long long;

constexpr int64_t kBatch = 2, kHeads = 2, kQueryHeads = 4, kDim = 32;

struct alignas(64) Line {
    char bytes[64];
};

struct Release {
    void operator()(void *memory) const {
        driver<int(DevicePointer)>("cuMemFree_v2")(reinterpret_cast<DevicePointer>(memory));
    }
};
using DeviceBytes = std::unique_ptr<void, Release>;

DeviceBytes device_bytes(size_t bytes) {
    DevicePointer memory = 0;
    EXPECT_EQ(driver<int(DevicePointer *, size_t)>("cuMemAlloc_v2")(&memory, std::max<size_t>(bytes, 1)), 0);
    return DeviceBytes(reinterpret_cast<void *>(memory));
}

DevicePointer address(const DeviceBytes &memory) {
    return reinterpret_cast<DevicePointer>(memory.get());
}

// The same random rows on the host and on the GPU.
struct Rows {
    Rows(int64_t heads, int64_t rows, unsigned seed, hattn_dtype dtype)
        : values(static_cast<size_t>(kBatch * heads * rows * kDim)), halves(values.size()) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        for (size_t i = 0; i < values.size(); ++i) {
            values[i] = normal(random);
            halves[i] = dtype == HATTN_FLOAT32 ? uint16_t{0} : cases::encode(dtype, static_cast<double>(values[i]));
        }
        host = HATTN_TENSOR_INIT;
        const int64_t extent[4] = {kBatch, heads, rows, kDim};
        int64_t stride = 1;
        for (int d = 3; d >= 0; --d) {
            host.extent[d] = extent[d];
            host.stride[d] = stride;
            stride *= extent[d];
        }
        host.dtype = dtype;
        host.data = dtype == HATTN_FLOAT32 ? static_cast<void *>(values.data()) : halves.data();
        const size_t bytes = values.size() * (dtype == HATTN_FLOAT32 ? sizeof(float) : sizeof(uint16_t));
        memory = device_bytes(bytes);
        driver<int(DevicePointer, const void *, size_t)>("cuMemcpyHtoD_v2")(address(memory), host.data, bytes);
        there = host;
        there.device = HATTN_CUDA;
        there.data = memory.get();
    }

    std::vector<float> values;
    std::vector<uint16_t> halves;
    hattn_tensor host, there;
    DeviceBytes memory;
};

// A cache on the GPU, in a stream, and one on the host that is given the same.
struct TwoCaches {
    TwoCaches(hattn_dtype dtype, int64_t page_size, int64_t window) {
        hattn_kv_cache_desc desc;
        hattn_kv_cache_desc_init(&desc);
        desc.batch = kBatch;
        desc.kv_heads = kHeads;
        desc.capacity = 64;
        desc.key_dim = kDim;
        desc.dtype = dtype;
        desc.page_size = page_size;
        desc.window = window;
        host = make(desc);
        queue.queue = new_stream(new_context(0));
        desc.device = HATTN_CUDA;
        desc.queue = &queue;
        there = make(desc);
    }
    test::CachePtr make(const hattn_kv_cache_desc &desc) const {
        hattn_kv_cache *cache = nullptr;
        EXPECT_EQ(hattn_kv_cache_create(context.get(), &desc, &cache), HATTN_OK) << hattn_last_error(nullptr);
        return test::CachePtr(cache);
    }

    const test::ContextPtr context = test::make_context();
    hattn_queue queue = HATTN_QUEUE_INIT;
    test::CachePtr host, there;
};

// One row of queries over the cache on the GPU, with workspaces of its own, so that nothing is waited for.
struct Attention {
    Attention(const TwoCaches &caches, unsigned seed, int64_t window)
        : q(kQueryHeads, 1, seed, HATTN_FLOAT32),
          out(kQueryHeads, 1, 0, HATTN_FLOAT32),
          expected(kQueryHeads, 1, 0, HATTN_FLOAT32) {
        hattn_attention_desc_init(&desc);
        desc.batch = kBatch;
        desc.query_heads = kQueryHeads;
        desc.query_length = 1;
        desc.window_left = window > 0 ? window - 1 : -1;
        hattn_attention_args_init(&args);
        args.q = q.host;
        args.out = expected.host;
        EXPECT_EQ(hattn_kv_cache_attend(caches.host.get(), &desc, &args), HATTN_OK) << hattn_last_error(nullptr);
        args.q = q.there;
        args.out = out.there;
        args.queue = &caches.queue;
        EXPECT_EQ(hattn_kv_cache_bind(caches.there.get(), &desc, &args), HATTN_OK) << hattn_last_error(nullptr);
        plan = test::make_plan(caches.context.get(), desc);
        hattn_plan_workspace_size(plan.get(), &args.workspace_size);
        hattn_plan_device_workspace_size(plan.get(), &args.device_workspace_size);
        workspace.resize(args.workspace_size / sizeof(Line) + 1);
        device_workspace = device_bytes(args.device_workspace_size);
        args.workspace = workspace.data();
        args.device_workspace = device_workspace.get();
        EXPECT_EQ(hattn_plan_execute(plan.get(), &args), HATTN_OK) << hattn_last_error(nullptr);
    }

    void expect_near(float tolerance) const {
        std::vector<float> actual(out.values.size());
        driver<int(void *, DevicePointer, size_t)>("cuMemcpyDtoH_v2")(actual.data(), address(out.memory),
                                                                      actual.size() * sizeof(float));
        for (size_t i = 0; i < actual.size(); ++i) {
            ASSERT_NEAR(actual[i], expected.values[i], tolerance) << i;
        }
    }

    Rows q, out, expected;
    hattn_attention_desc desc;
    hattn_attention_args args;
    test::PlanPtr plan;
    std::vector<Line> workspace;
    DeviceBytes device_workspace;
};

struct Kind {
    hattn_dtype stored, given;
    int64_t page_size, window;
};

TEST_F(CacheStream, AppendsAndAttendsWithoutWaiting) {
    constexpr int kSteps = 7;
    hattn_rope rope;
    hattn_rope_init(&rope);
    unsigned seed = 0;
    for (const Kind &kind : {Kind{HATTN_FLOAT32, HATTN_FLOAT32, 16, 0}, Kind{HATTN_FLOAT16, HATTN_FLOAT16, 0, 0},
                             Kind{HATTN_INT8, HATTN_BFLOAT16, 16, 0}, Kind{HATTN_INT4, HATTN_FLOAT32, 0, 20}}) {
        const TwoCaches caches(kind.stored, kind.page_size, kind.window);
        std::vector<std::unique_ptr<Rows>> rows;  // stay until the stream is done
        std::vector<std::unique_ptr<Attention>> attentions;
        std::vector<std::string> waits;
        for (int step = 0; step < kSteps; ++step) {
            const int64_t count = step == 0 ? 20 : 1;
            for (int side = 0; side < 2; ++side) {
                rows.push_back(std::make_unique<Rows>(kHeads, count, ++seed, kind.given));
            }
            const Rows &k = *rows[rows.size() - 2], &v = *rows.back();
            ASSERT_EQ(hattn_kv_append_rope(caches.host.get(), &k.host, &v.host, nullptr, &rope), HATTN_OK);
            start_log();
            ASSERT_EQ(hattn_kv_append_rope(caches.there.get(), &k.there, &v.there, nullptr, &rope), HATTN_OK)
                << hattn_last_error(nullptr);
            if (step == 3) {  // a page of both is copied by the next append
                for (const test::CachePtr *cache : {&caches.host, &caches.there}) {
                    ASSERT_EQ(hattn_kv_cache_fork(cache->get(), 0, 1, -1), HATTN_OK) << hattn_last_error(nullptr);
                }
            }
            const std::vector<std::string> appended = log_lines("wait ");
            waits.insert(waits.end(), appended.begin(), appended.end());
            unsetenv("HATTN_STUB_CUDA_LOG");
            attentions.push_back(std::make_unique<Attention>(caches, ++seed, kind.window));
        }
        EXPECT_LE(waits.size(), 1u) << "beside that for a longer table";
        for (const auto &attention : attentions) {
            attention->expect_near(kind.stored == HATTN_FLOAT32 ? 2e-5f : 1e-2f);
        }
    }
}

}  // namespace
