// KV caches whose rows are on a device, OpenCL or the emulated GPU: what is attended is what a cache on the host gives.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "number_formats.h"
#include "support/devices.h"
#include "support/handles.h"
#include "support/opencl_queue.h"
#include "support/run.h"

namespace {

using namespace hattn;

constexpr int64_t kBatch = 2, kHeads = 2, kQueryHeads = 4, kKeyDim = 40, kValueDim = 27;
constexpr float kTolerance = 2e-5f;  // of outputs below 4: angles and products in float32
// Where angles in float32 may decide how a turned key is rounded.
constexpr float kTurnedTolerance = 1e-2f;

// Random numbers in a type.
struct Rows {
    Rows(int64_t heads, int64_t rows, int64_t dim, unsigned seed, hattn_dtype dtype = HATTN_FLOAT32)
        : values(static_cast<size_t>(kBatch * heads * rows * dim)), halves(values.size()) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        for (size_t i = 0; i < values.size(); ++i) {
            values[i] = normal(random);
            halves[i] = dtype == HATTN_FLOAT32 ? uint16_t{0} : cases::encode(dtype, static_cast<double>(values[i]));
        }
        tensor = HATTN_TENSOR_INIT;
        const int64_t extent[4] = {kBatch, heads, rows, dim};
        int64_t stride = 1;
        for (int d = 3; d >= 0; --d) {
            tensor.extent[d] = extent[d];
            tensor.stride[d] = stride;
            stride *= extent[d];
        }
        tensor.dtype = dtype;
        tensor.data = dtype == HATTN_FLOAT32 ? static_cast<void *>(values.data()) : halves.data();
    }
    std::vector<float> values;
    std::vector<uint16_t> halves;
    hattn_tensor tensor;
};

struct Kind {
    const char *name;
    int64_t page_size, window;
};
constexpr Kind kKinds[] = {{"contiguous", 0, 0}, {"paged", 16, 0}, {"ring", 0, 40}};

// What is kept, and what is appended.
struct Types {
    const char *name;
    hattn_dtype keys, values, given;
    bool given_scales = false;
};
constexpr Types kTypes[] = {
    {"float32", HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32},
    {"float16_and_bfloat16", HATTN_FLOAT16, HATTN_BFLOAT16, HATTN_FLOAT32},
    {"float32_of_bfloat16", HATTN_FLOAT32, HATTN_BFLOAT16, HATTN_BFLOAT16},
    {"float16_as_given", HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16},
    {"int8_and_int4", HATTN_INT8, HATTN_INT4, HATTN_FLOAT32},
    {"int4_and_float16", HATTN_INT4, HATTN_FLOAT16, HATTN_FLOAT16},
    {"scales_given", HATTN_INT8, HATTN_INT4, HATTN_BFLOAT16, true},
};

struct Storage {
    Kind kind;
    Types types;
};

std::vector<Storage> every_storage() {
    std::vector<Storage> all;
    for (const Types &types : kTypes) {
        for (const Kind &kind : kKinds) {
            all.push_back({kind, types});
        }
    }
    return all;
}

// A driver compiles kernels for each combination of types, in seconds: every kind in float32, every type in pages.
std::vector<Storage> some_storage() {
    std::vector<Storage> some = every_storage();
    std::erase_if(some, [](const Storage &storage) {
        return storage.kind.page_size == 0 && storage.types.keys != storage.types.given;
    });
    return some;
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

// device: that computes; a cache on one decides by itself.
std::vector<float> attend(hattn_kv_cache *cache, const Kind &kind, unsigned seed, hattn_device device = HATTN_CPU) {
    constexpr int64_t kRows = 3;
    Rows q(kQueryHeads, kRows, kKeyDim, seed), out(kQueryHeads, kRows, kValueDim, 0);
    hattn_attention_desc desc;
    hattn_attention_desc_init(&desc);
    desc.batch = kBatch;
    desc.query_heads = kQueryHeads;
    desc.query_length = kRows;
    desc.causal = 1;
    desc.window_left = kind.window > 0 ? kind.window - 1 : -1;
    desc.device = device;
    hattn_attention_args args;
    hattn_attention_args_init(&args);
    args.q = q.tensor;
    args.out = out.tensor;
    EXPECT_EQ(hattn_kv_cache_attend(cache, &desc, &args), HATTN_OK) << hattn_last_error(nullptr);
    return out.values;
}

class DeviceCache : public testing::TestWithParam<std::tuple<std::string, Storage>> {
protected:
    void SetUp() override {
        const auto &[device, storage] = GetParam();
        if (const std::string why_not = test::device_unusable(device); !why_not.empty()) {
            GTEST_SKIP() << device << ": " << why_not;
        }
        Rows key_scales(kHeads, 1, kKeyDim, 1), value_scales(kHeads, 1, kValueDim, 2);
        hattn_kv_cache_desc desc = desc_of(storage.kind);
        desc.dtype = storage.types.keys;
        desc.value_dtype = storage.types.values;
        if (storage.types.given_scales) {
            desc.k_scale = one_sequence(key_scales);
            desc.v_scale = one_sequence(value_scales);
        }
        host_ = make_cache(desc);
        desc.device = test::device_of(device);
        there_ = make_cache(desc);
    }
    static hattn_tensor one_sequence(Rows &scales) {
        for (float &scale : scales.values) {
            scale = 0.02f + 0.01f * std::abs(scale);  // some of what is appended does not fit
        }
        scales.tensor.extent[0] = 1;
        return scales.tensor;
    }
    void append(int64_t rows, const std::vector<int32_t> &lengths, const hattn_rope *rope) {
        const hattn_dtype dtype = std::get<1>(GetParam()).types.given;
        const Rows k(kHeads, rows, kKeyDim, ++seed_, dtype), v(kHeads, rows, kValueDim, ++seed_, dtype);
        turned_ = turned_ || rope;
        for (hattn_kv_cache *cache : {host_.get(), there_.get()}) {
            ASSERT_EQ(
                hattn_kv_append_rope(cache, &k.tensor, &v.tensor, lengths.empty() ? nullptr : lengths.data(), rope),
                HATTN_OK)
                << hattn_last_error(nullptr);
        }
    }

    // On the same device the same bytes give the same bits.
    void expect_same() {
        const auto &[device, storage] = GetParam();
        const Kind &kind = storage.kind;
        const bool rounds = storage.types.keys != HATTN_FLOAT32;
        const float tolerance = turned_ && rounds ? kTurnedTolerance : kTolerance;
        const std::vector<float> expected = attend(host_.get(), kind, ++seed_);
        const std::vector<float> staged = attend(host_.get(), kind, seed_, test::device_of(device));
        const std::vector<float> actual = attend(there_.get(), kind, seed_);
        for (size_t i = 0; i < expected.size(); ++i) {
            ASSERT_NEAR(actual[i], expected[i], tolerance) << i;
            if (!turned_) {
                ASSERT_EQ(actual[i], staged[i]) << i;
            }
        }
    }

    test::CachePtr host_, there_;
    unsigned seed_ = 10;
    bool turned_ = false;
};

TEST_P(DeviceCache, AttendsAsOneOnTheHost) {
    append(21, {21, 4}, nullptr);
    expect_same();
    append(30, {}, nullptr);
    append(1, {}, nullptr);
    expect_same();
    if (std::get<1>(GetParam()).kind.window > 0) {
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

TEST_P(DeviceCache, TakesPackedRows) {
    constexpr int32_t kRowsOfBoth = 29;
    hattn_rope rope;
    hattn_rope_init(&rope);
    const hattn_dtype dtype = std::get<1>(GetParam()).types.given;
    for (const auto &[first, turn] : {std::pair(20, false), std::pair(0, false), std::pair(3, true)}) {
        Rows k(kHeads, kRowsOfBoth, kKeyDim, ++seed_, dtype), v(kHeads, kRowsOfBoth, kValueDim, ++seed_, dtype);
        k.tensor.extent[0] = v.tensor.extent[0] = 1;
        const int32_t ends[kBatch + 1] = {0, first, kRowsOfBoth};
        turned_ = turned_ || turn;
        for (hattn_kv_cache *cache : {host_.get(), there_.get()}) {
            ASSERT_EQ(hattn_kv_append_packed(cache, &k.tensor, &v.tensor, ends, turn ? &rope : nullptr), HATTN_OK)
                << hattn_last_error(nullptr);
        }
        expect_same();
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
    const int32_t lengths[kBatch] = {19, 11};
    for (hattn_kv_cache *cache : {host_.get(), there_.get()}) {
        ASSERT_EQ(hattn_kv_cache_truncate(cache, lengths), HATTN_OK) << hattn_last_error(nullptr);
    }
    append(3, {1, 3}, nullptr);
    expect_same();
}

std::string name_of(const testing::TestParamInfo<std::tuple<std::string, Storage>> &run) {
    const auto &[device, storage] = run.param;
    return device + "_" + storage.kind.name + "_" + storage.types.name;
}

INSTANTIATE_TEST_SUITE_P(OpenCl, DeviceCache,
                         testing::Combine(testing::Values("opencl"), testing::ValuesIn(some_storage())), name_of);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceCache,
                         testing::Combine(testing::Values("cuda"), testing::ValuesIn(every_storage())), name_of);

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
              "HATTN_INVALID_ARGUMENT: device_id: is 1, but must be 0 unless device is 2 (cuda)");
    const hattn_queue queue = HATTN_QUEUE_INIT;
    EXPECT_EQ(refused([&](Desc &desc) { desc.queue = &queue; }),
              "HATTN_INVALID_ARGUMENT: queue: is given, but device is 0 (cpu)");
}

}  // namespace
