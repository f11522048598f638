// KV caches whose rows are on a device, OpenCL or the emulated GPU: what is attended is what a cache on the host gives.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "support/devices.h"
#include "support/handles.h"
#include "support/opencl_queue.h"
#include "support/run.h"

namespace {

using namespace hattn;

constexpr int64_t kBatch = 2, kHeads = 2, kQueryHeads = 4, kKeyDim = 24, kValueDim = 40;
constexpr float kTolerance = 2e-5f;  // of outputs below 4: angles and products in float32

struct Rows {
    Rows(int64_t heads, int64_t rows, int64_t dim, unsigned seed)
        : values(static_cast<size_t>(kBatch * heads * rows * dim)) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        for (float &value : values) {
            value = normal(random);
        }
        tensor = HATTN_TENSOR_INIT;
        const int64_t extent[4] = {kBatch, heads, rows, dim};
        int64_t stride = 1;
        for (int d = 3; d >= 0; --d) {
            tensor.extent[d] = extent[d];
            tensor.stride[d] = stride;
            stride *= extent[d];
        }
        tensor.data = values.data();
    }
    std::vector<float> values;
    hattn_tensor tensor;
};

struct Kind {
    const char *name;
    int64_t page_size, window;
};

void PrintTo(const Kind &kind, std::ostream *stream) {
    *stream << kind.name;
}

hattn_kv_cache_desc desc_of(const Kind &kind) {
    hattn_kv_cache_desc desc;
    hattn_kv_cache_desc_init(&desc);
    desc.batch = kBatch;
    desc.kv_heads = kHeads;
    desc.capacity = 96;
    desc.key_dim = kKeyDim;
    desc.value_dim = kValueDim;
    desc.page_size = kind.page_size;
    desc.window = kind.window;
    return desc;
}

test::CachePtr make_cache(const hattn_kv_cache_desc &desc) {
    hattn_kv_cache *cache = nullptr;
    EXPECT_EQ(hattn_kv_cache_create(test::device_context(), &desc, &cache), HATTN_OK) << hattn_last_error(nullptr);
    return test::CachePtr(cache);
}

std::vector<float> attend(hattn_kv_cache *cache, const Kind &kind, unsigned seed) {
    constexpr int64_t kRows = 3;
    Rows q(kQueryHeads, kRows, kKeyDim, seed), out(kQueryHeads, kRows, kValueDim, 0);
    hattn_attention_desc desc;
    hattn_attention_desc_init(&desc);
    desc.batch = kBatch;
    desc.query_heads = kQueryHeads;
    desc.query_length = kRows;
    desc.causal = 1;
    desc.window_left = kind.window > 0 ? kind.window - 1 : -1;
    hattn_attention_args args;
    hattn_attention_args_init(&args);
    args.q = q.tensor;
    args.out = out.tensor;
    EXPECT_EQ(hattn_kv_cache_attend(cache, &desc, &args), HATTN_OK) << hattn_last_error(nullptr);
    return out.values;
}

class DeviceCache : public testing::TestWithParam<std::tuple<std::string, Kind>> {
protected:
    void SetUp() override {
        const auto &[device, kind] = GetParam();
        if (const std::string why_not = test::device_unusable(device); !why_not.empty()) {
            GTEST_SKIP() << device << ": " << why_not;
        }
        hattn_kv_cache_desc desc = desc_of(kind);
        host_ = make_cache(desc);
        desc.device = test::device_of(device);
        there_ = make_cache(desc);
    }

    void append(int64_t rows, const std::vector<int32_t> &lengths, const hattn_rope *rope) {
        const Rows k(kHeads, rows, kKeyDim, ++seed_), v(kHeads, rows, kValueDim, ++seed_);
        for (hattn_kv_cache *cache : {host_.get(), there_.get()}) {
            ASSERT_EQ(
                hattn_kv_append_rope(cache, &k.tensor, &v.tensor, lengths.empty() ? nullptr : lengths.data(), rope),
                HATTN_OK)
                << hattn_last_error(nullptr);
        }
    }
    void expect_same() {
        const Kind &kind = std::get<1>(GetParam());
        const std::vector<float> expected = attend(host_.get(), kind, ++seed_);
        const std::vector<float> actual = attend(there_.get(), kind, seed_);
        for (size_t i = 0; i < expected.size(); ++i) {
            ASSERT_NEAR(actual[i], expected[i], kTolerance) << i;
        }
    }

    test::CachePtr host_, there_;
    unsigned seed_ = 0;
};

TEST_P(DeviceCache, AttendsAsOneOnTheHost) {
    append(21, {21, 4}, nullptr);
    expect_same();
    append(30, {}, nullptr);
    append(1, {}, nullptr);
    expect_same();
    if (std::get<1>(GetParam()).window > 0) {
        for (int i = 0; i < 4; ++i) {  // past the end of the ring
            append(30, {30, 7}, nullptr);
            expect_same();
        }
    }
}

TEST_P(DeviceCache, TurnsKeys) {
    hattn_rope rope;
    hattn_rope_init(&rope);
    for (const hattn_rope_style style : {HATTN_ROPE_HALF_SPLIT, HATTN_ROPE_INTERLEAVED}) {
        rope.style = style;
        for (const int64_t dim : {int64_t{0}, kKeyDim / 2}) {
            rope.rotary_dim = dim;
            append(9, {9, 5}, &rope);
            expect_same();
        }
    }
}

TEST_P(DeviceCache, ForksAndCopiesOnWrite) {
    append(20, {20, 3}, nullptr);
    for (hattn_kv_cache *cache : {host_.get(), there_.get()}) {
        ASSERT_EQ(hattn_kv_cache_fork(cache, 0, 1, 18), HATTN_OK) << hattn_last_error(nullptr);
    }
    expect_same();
    append(2, {}, nullptr);
    expect_same();
}

INSTANTIATE_TEST_SUITE_P(All, DeviceCache,
                         testing::Combine(testing::Values("opencl", "cuda"),
                                          testing::Values(Kind{"contiguous", 0, 0}, Kind{"paged", 16, 0},
                                                          Kind{"ring", 0, 40})),
                         [](const auto &run) { return std::get<0>(run.param) + "_" + std::get<1>(run.param).name; });

// Rows of the device itself, in a queue of the application's.
TEST(OpenClCache, TakesRowsOfItsQueue) {
    if (const std::string why_not = test::device_unusable("opencl"); !why_not.empty()) {
        GTEST_SKIP() << why_not;
    }
    cases::Case c;
    c.name = "device_cache";
    c.query_length = 3;
    c.kv_length = 33;
    test::Prepared data(c);
    const test::OpenClQueue queue;
    const hattn_queue handle = queue.handle();
    hattn_kv_cache_desc desc;
    hattn_kv_cache_desc_init(&desc);
    desc.batch = c.batch;
    desc.kv_heads = c.kv_heads;
    desc.capacity = 50;
    desc.key_dim = c.key_dim;
    desc.value_dim = c.value_dim;
    desc.page_size = 16;
    desc.device = HATTN_OPENCL;
    desc.queue = &handle;
    const test::CachePtr cache = make_cache(desc);
    const test::OpenClTensor k(queue, data.problem.k, 64), v(queue, data.problem.v, 0);
    ASSERT_EQ(hattn_kv_append(cache.get(), &k.view(), &v.view(), nullptr), HATTN_OK) << hattn_last_error(nullptr);
    data.problem.fill_outputs();
    data.problem.args.queue = &handle;
    ASSERT_EQ(hattn_kv_cache_attend(cache.get(), &data.problem.desc, &data.problem.args), HATTN_OK)
        << hattn_last_error(nullptr);
    EXPECT_EQ(cases::difference(data.problem, data.expected), "");
}

TEST(DeviceCacheErrors, NameTheArgument) {
    const auto refused = [](auto change) {
        hattn_kv_cache_desc desc = desc_of({"", 0, 0});
        change(desc);
        hattn_kv_cache *cache = nullptr;
        const hattn_status status = hattn_kv_cache_create(test::device_context(), &desc, &cache);
        return std::string(hattn_status_name(status)) + ": " + hattn_last_error(nullptr);
    };
    using Desc = hattn_kv_cache_desc;
    EXPECT_EQ(refused([](Desc &desc) { desc.device = static_cast<hattn_device>(9); }),
              "HATTN_INVALID_ARGUMENT: device: is 9, which is no hattn_device");
    EXPECT_EQ(refused([](Desc &desc) { desc.device_id = 1; }),
              "HATTN_INVALID_ARGUMENT: device_id: is 1, but must be 0 where device is not cuda");
    EXPECT_EQ(refused([](Desc &desc) {
                  desc.device = HATTN_CUDA;
                  desc.dtype = HATTN_FLOAT16;
              }),
              "HATTN_NOT_SUPPORTED: dtype: is float16, but caches on device cuda hold float32 alone");
    const hattn_queue queue = HATTN_QUEUE_INIT;
    EXPECT_EQ(refused([&](Desc &desc) { desc.queue = &queue; }),
              "HATTN_INVALID_ARGUMENT: queue: is given, but device is 0 (cpu)");
}

}  // namespace
