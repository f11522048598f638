// Rows turned by rotary position embedding, and merged states, in OpenCL memory: what the host makes of them.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "number_formats.h"
#include "support/attention_states.h"
#include "support/cache_model.h"
#include "support/devices.h"
#include "support/opencl_queue.h"
#include "support/refusal.h"

namespace {

using namespace hattn;
using cases::Extents;
using cases::TensorData;
using test::OpenClTensor;
using test::Outcome;
using test::Refusal;
using test::States;

constexpr unsigned char kFill = cases::Problem::kOutputFill;
constexpr std::array<int, 4> kDense = {0, 1, 2, 3}, kHeadsTogether = {0, 2, 1, 3};
constexpr hattn_dtype kFloats[] = {HATTN_FLOAT32, HATTN_FLOAT16, HATTN_BFLOAT16};

// Normal numbers, rounded to a type.
TensorData normal(hattn_dtype dtype, const Extents &extents, const std::array<int, 4> &order, uint64_t seed) {
    TensorData wide = cases::make_tensor(HATTN_FLOAT32, extents, order);
    cases::fill_normal(wide.view, seed);
    if (dtype == HATTN_FLOAT32) {
        return wide;
    }
    TensorData tensor = cases::make_tensor(dtype, extents, order);
    cases::for_each_index(extents, [&](auto... index) {
        cases::element<uint16_t>(tensor.view, index...) =
            cases::encode(dtype, cases::element<float>(wide.view, index...));
    });
    return tensor;
}

double value(const hattn_tensor &tensor, int64_t b, int64_t h, int64_t i, int64_t d) {
    return tensor.dtype == HATTN_FLOAT32 ? double{cases::element<float>(tensor, b, h, i, d)}
                                         : cases::decode(tensor.dtype, cases::element<uint16_t>(tensor, b, h, i, d));
}

// Where two tensors differ by more than a last place of their type, and what two products and their sum in float32
// leave open of numbers of size 4; "": nowhere.
std::string difference(const TensorData &a, const TensorData &b) {
    std::string text;
    const hattn_dtype dtype = a.view.dtype;
    cases::for_each_index(cases::extents_of(a.view), [&](int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
        const double x = value(a.view, i0, i1, i2, i3), y = value(b.view, i0, i1, i2, i3);
        const double bound = 2.0 * cases::roundoff(dtype) * std::fabs(x) + cases::smallest_step(dtype) + 0x1p-20;
        if (!(std::fabs(x - y) <= bound) && text.empty()) {
            text = std::to_string(x) + " and " + std::to_string(y) + " at " + std::to_string(i0) + " " +
                   std::to_string(i1) + " " + std::to_string(i2) + " " + std::to_string(i3);
        }
    });
    return text;
}

bool same_bytes(const TensorData &a, const TensorData &b) {
    return std::equal(a.storage->data(), a.storage->data() + a.storage->size(), b.storage->data());
}

TensorData copy_of(const TensorData &tensor) {
    TensorData copy = tensor;
    copy.storage = std::make_shared<cases::Storage>(tensor.storage->size());
    std::copy_n(tensor.storage->data(), tensor.storage->size(), copy.storage->data());
    copy.view.data = copy.storage->data() + (static_cast<std::byte *>(tensor.view.data) - tensor.storage->data());
    return copy;
}

class DeviceRows : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string why_not = test::device_unusable("opencl"); !why_not.empty()) {
            GTEST_SKIP() << why_not;
        }
        queue_ = std::make_unique<test::OpenClQueue>();
        handle_ = queue_->handle();
        hattn_rope_init(&rope_);
    }

    static Outcome outcome(hattn_status status) {
        return test::outcome_of(status, test::device_context());
    }

    // On the device, from x to out, or in place if that is null.
    Outcome turn(TensorData &x, TensorData *out, const int32_t *offsets, const int32_t *lengths) {
        const OpenClTensor from(*queue_, x, 64);
        if (!out) {
            const Outcome result = outcome(hattn_rope_apply_in_queue(test::device_context(), &handle_, &rope_,
                                                                     &from.view(), &from.view(), offsets, lengths));
            from.fetch();
            return result;
        }
        const OpenClTensor to(*queue_, *out, 256);
        const Outcome result = outcome(hattn_rope_apply_in_queue(test::device_context(), &handle_, &rope_, &from.view(),
                                                                 &to.view(), offsets, lengths));
        to.fetch();
        return result;
    }

    std::unique_ptr<test::OpenClQueue> queue_;
    hattn_queue handle_;
    hattn_rope rope_;
};

TEST_F(DeviceRows, AreTurnedAsOnTheHost) {
    const int32_t offsets[3] = {5, 0, 100}, lengths[3] = {7, 0, 4};
    for (const hattn_dtype dtype : kFloats) {
        for (const auto &[dim, rotary] : {std::pair(64, 0), std::pair(64, 24), std::pair(34, 34), std::pair(7, 4)}) {
            for (const bool interleaved : {false, true}) {
                SCOPED_TRACE(std::to_string(dtype) + " " + std::to_string(dim) + " " + std::to_string(rotary));
                rope_.rotary_dim = rotary;
                rope_.style = interleaved ? HATTN_ROPE_INTERLEAVED : HATTN_ROPE_HALF_SPLIT;
                const auto &order = interleaved ? kHeadsTogether : kDense;
                const Extents extents = {3, 2, 7, dim};
                TensorData x = normal(dtype, extents, order, static_cast<uint64_t>(dim));
                TensorData out = cases::make_tensor(dtype, extents, order), expected = out;
                cases::fill_bytes(out, kFill);
                expected = copy_of(out);
                ASSERT_EQ(hattn_rope_apply(test::device_context(), &rope_, &x.view, &expected.view, offsets, lengths),
                          HATTN_OK);
                const Outcome outcome = turn(x, &out, offsets, lengths);
                ASSERT_TRUE(outcome.ok()) << outcome.text();
                EXPECT_EQ(difference(expected, out), "");
                for (int64_t i = 0; i < 7; ++i) {  // rows behind the lengths were not written
                    EXPECT_EQ(value(out.view, 1, 1, i, 0), value(expected.view, 1, 1, i, 0));
                }
                const TensorData before = copy_of(x);
                ASSERT_TRUE(turn(x, nullptr, offsets, lengths).ok());
                EXPECT_EQ(difference(before, x).empty(), false);
                TensorData untouched = copy_of(before);
                ASSERT_TRUE(turn(untouched, &out, offsets, nullptr).ok());
                cases::for_each_index(extents, [&](int64_t b, int64_t h, int64_t i, int64_t d) {
                    const TensorData &same = i < lengths[b] ? out : before;  // in place the same bits
                    EXPECT_EQ(value(x.view, b, h, i, d), value(same.view, b, h, i, d));
                });
            }
        }
    }
}

TEST_F(DeviceRows, AreTurnedByTablesToPositions) {
    const std::vector<float> cosines = {1.0f, 0.5f, 0.0f, -1.0f}, sines = {0.0f, 0.25f, 1.0f, 3.0f};
    const int32_t positions[4] = {1, 0, 0, 1};
    rope_.cos_table = cosines.data();
    rope_.sin_table = sines.data();
    rope_.table_positions = 2;
    rope_.positions = positions;
    rope_.positions_stride = 2;
    TensorData x = normal(HATTN_FLOAT32, {2, 1, 2, 4}, kDense, 3),
               out = cases::make_tensor(HATTN_FLOAT32, {2, 1, 2, 4});
    TensorData expected = copy_of(out);
    ASSERT_EQ(hattn_rope_apply(test::device_context(), &rope_, &x.view, &expected.view, nullptr, nullptr), HATTN_OK);
    ASSERT_TRUE(turn(x, &out, nullptr, nullptr).ok());
    EXPECT_EQ(difference(expected, out), "");
}

// A cache on the device with sequences of 5 and 9 keys, whose queue is the application's.
test::CachePtr cache_in(const hattn_queue &queue) {
    hattn_kv_cache_desc desc = test::cache_desc(2, 2, 64, 16, 16);
    desc.device = HATTN_OPENCL;
    desc.queue = &queue;
    test::CachePtr cache = test::make_cache(test::device_context(), desc);
    const TensorData rows = normal(HATTN_FLOAT32, {2, 2, 9, 16}, kDense, 1);
    const int32_t lengths[2] = {5, 9};
    EXPECT_EQ(hattn_kv_append(cache.get(), &rows.view, &rows.view, lengths), HATTN_OK) << hattn_last_error(nullptr);
    return cache;
}

TEST_F(DeviceRows, OfACacheAreTurnedToTheirPlaces) {
    const test::CachePtr cache = cache_in(handle_);
    const int32_t lengths[2] = {2, 3}, offsets[2] = {3, 6}, ends[3] = {0, 2, 5};
    for (const hattn_dtype dtype : kFloats) {
        TensorData x = normal(dtype, {2, 4, 3, 16}, kDense, 2), out = cases::make_tensor(dtype, {2, 4, 3, 16});
        TensorData expected = copy_of(out);
        ASSERT_TRUE(turn(x, &expected, offsets, lengths).ok());
        const OpenClTensor from(*queue_, x, 0), to(*queue_, out, 64);
        ASSERT_EQ(hattn_kv_rope_apply(cache.get(), &rope_, &from.view(), &to.view(), lengths), HATTN_OK);
        queue_->finish();
        to.fetch();
        EXPECT_TRUE(same_bytes(out, expected)) << dtype;

        TensorData packed = cases::make_tensor(dtype, {1, 4, 5, 16}), packed_out = copy_of(packed);
        const auto place_of = [&](int64_t i) { return i < 2 ? std::pair(0, i) : std::pair(1, i - 2); };
        cases::for_each_index({1, 4, 5, 16}, [&](int64_t, int64_t h, int64_t i, int64_t d) {
            const auto [b, row] = place_of(i);
            if (dtype == HATTN_FLOAT32) {
                cases::element<float>(packed.view, 0, h, i, d) = cases::element<float>(x.view, b, h, row, d);
            } else {
                cases::element<uint16_t>(packed.view, 0, h, i, d) = cases::element<uint16_t>(x.view, b, h, row, d);
            }
        });
        // On the device in place, and on the host.
        const OpenClTensor packed_rows(*queue_, packed, 0);
        const TensorData host_rows = copy_of(packed);
        ASSERT_EQ(hattn_kv_rope_apply_packed(cache.get(), &rope_, &packed_rows.view(), &packed_rows.view(), ends),
                  HATTN_OK);
        ASSERT_EQ(hattn_kv_rope_apply_packed(cache.get(), &rope_, &host_rows.view, &packed_out.view, ends), HATTN_OK);
        queue_->finish();
        packed_rows.fetch();
        EXPECT_EQ(difference(packed_out, packed), "");
        cases::for_each_index({1, 4, 5, 16}, [&](int64_t, int64_t h, int64_t i, int64_t d) {
            const auto [b, row] = place_of(i);
            EXPECT_EQ(value(packed.view, 0, h, i, d), value(expected.view, b, h, row, d));
        });
    }
}

TEST_F(DeviceRows, ThatAreElsewhereAreRefused) {
    const test::CachePtr cache = cache_in(handle_);
    TensorData x = normal(HATTN_FLOAT32, {2, 2, 3, 16}, kDense, 4), out = copy_of(x);
    const OpenClTensor from(*queue_, x, 0), to(*queue_, out, 0);
    hattn_context *const context = test::device_context();
    const auto refused = [&](hattn_status status, const Refusal &refusal) {
        return test::mismatch(outcome(status), refusal);
    };
    EXPECT_EQ(refused(hattn_rope_apply(context, &rope_, &from.view(), &out.view, nullptr, nullptr),
                      {HATTN_INVALID_ARGUMENT, {"out: is on cpu, but x is on opencl:0"}}),
              "");
    EXPECT_EQ(refused(hattn_rope_apply_in_queue(context, &handle_, &rope_, &x.view, &out.view, nullptr, nullptr),
                      {HATTN_INVALID_ARGUMENT, {"queue: is given, but x is on cpu"}}),
              "");
    // Memory of another context than that of the library's own queue.
    EXPECT_EQ(refused(hattn_rope_apply(context, &rope_, &from.view(), &to.view(), nullptr, nullptr),
                      {HATTN_INVALID_ARGUMENT, {"x: its cl_mem is of the context"}}),
              "");
    hattn_tensor elsewhere = from.view();
    elsewhere.device_id = 3;
    EXPECT_EQ(refused(hattn_kv_rope_apply(cache.get(), &rope_, &elsewhere, &elsewhere, nullptr),
                      {HATTN_INVALID_ARGUMENT, {"x: is on opencl:3, but the cache is on opencl:0"}}),
              "");
    const int32_t lengths[2] = {3, 3};
    ASSERT_EQ(hattn_kv_cache_truncate(cache.get(), std::vector<int32_t>{2, 9}.data()), HATTN_OK);
    EXPECT_EQ(refused(hattn_kv_rope_apply(cache.get(), &rope_, &from.view(), &to.view(), lengths),
                      {HATTN_INVALID_ARGUMENT, {"x: sequence 0 has 3 rows, but the cache has 2 keys of it"}}),
              "");
    queue_->finish();
    to.fetch();
    EXPECT_EQ(difference(x, out), "");
}

// States in OpenCL memory.
struct DeviceStates {
    DeviceStates(const test::OpenClQueue &queue, States &given) : states(given) {
        for (TensorData &state : states.outs) {
            outs.emplace_back(queue, state, 64);
            out_views.push_back(outs.back().view());
        }
        for (TensorData &state : states.lses) {
            lses.emplace_back(queue, state, 192);
            lse_views.push_back(lses.back().view());
        }
        out = std::make_unique<OpenClTensor>(queue, states.out, 128);
        lse = std::make_unique<OpenClTensor>(queue, states.lse, 0);
    }

    Outcome merge(const hattn_queue *queue) {
        const auto count = static_cast<int32_t>(outs.size());
        const Outcome outcome = test::outcome_of(hattn_merge_states_in_queue(
            test::device_context(), queue, count, out_views.data(), lse_views.data(), &out->view(), &lse->view()));
        out->fetch();
        lse->fetch();
        return outcome;
    }

    States &states;
    std::vector<OpenClTensor> outs, lses;
    std::vector<hattn_tensor> out_views, lse_views;
    std::unique_ptr<OpenClTensor> out, lse;
};

std::string merged(const test::OpenClQueue &queue, const hattn_queue &handle, States &states) {
    const Outcome outcome = DeviceStates(queue, states).merge(&handle);
    if (!outcome.ok()) {
        return outcome.text();
    }
    const cases::Expected expected = states.expected();
    return cases::difference("out", states.out.view, expected.out, expected.out_bound) +
           cases::difference("lse", states.lse.view, expected.lse, expected.lse_bound);
}

TEST_F(DeviceRows, OfStatesAreMerged) {
    for (const int32_t count : {1, 2, 5, 40}) {
        for (const int64_t dim : {1, 7, 64}) {
            for (const auto &order : {kDense, kHeadsTogether}) {
                States states(count, {2, 3, 5, dim}, static_cast<uint64_t>(count * 100 + dim), order);
                EXPECT_EQ(merged(*queue_, handle_, states), "") << count << " states of " << dim;
            }
        }
    }
}

// 57 568 bytes of states to a row of all heads: more rows than are gathered at a time, which end within a sequence.
TEST_F(DeviceRows, OfManyStatesAreMergedSomeAtATime) {
    States states(7, {2, 8, 700, 256}, 6);
    EXPECT_EQ(merged(*queue_, handle_, states), "");
}

TEST_F(DeviceRows, OfDeadStatesWeighNothing) {
    States states(3, {1, 2, 4, 8}, 7);
    const float infinity = std::numeric_limits<float>::infinity();
    for (int64_t row = 0; row < 8; ++row) {
        for (size_t n = 0; n < (row == 0 ? 3 : 1); ++n) {
            states.lses[n].floats()[row] = -infinity;
            std::fill_n(states.outs[n].floats() + row * 8, 8, std::numeric_limits<float>::quiet_NaN());
        }
    }
    ASSERT_TRUE(DeviceStates(*queue_, states).merge(&handle_).ok());
    const std::vector<float> out = cases::dense_floats(states.out.view), lse = cases::dense_floats(states.lse.view);
    EXPECT_EQ(std::vector<float>(out.begin(), out.begin() + 8), std::vector<float>(8, 0.0f));
    EXPECT_EQ(lse[0], -infinity);
    for (size_t i = 8; i < out.size(); ++i) {
        EXPECT_TRUE(std::isfinite(out[i])) << i;
    }
}

TEST_F(DeviceRows, OfStatesHaveTypes) {
    for (const hattn_dtype dtype : {HATTN_FLOAT16, HATTN_BFLOAT16}) {
        States states(3, {2, 2, 9, 40}, 8);
        for (TensorData &out : states.outs) {
            out = normal(dtype, {2, 2, 9, 40}, kDense, 9);
        }
        states.out = cases::make_tensor(dtype, {2, 2, 9, 40});
        ASSERT_TRUE(states.merge(test::device_context()).ok());
        const TensorData expected = copy_of(states.out), expected_lse = copy_of(states.lse);
        states.clear();
        ASSERT_TRUE(DeviceStates(*queue_, states).merge(&handle_).ok());
        EXPECT_EQ(difference(expected, states.out), "") << dtype;
        EXPECT_EQ(difference(expected_lse, states.lse), "") << dtype;
    }
}

TEST_F(DeviceRows, OfStatesElsewhereAreRefused) {
    States states(2, {1, 2, 3, 4}, 10);
    states.clear();
    DeviceStates on_device(*queue_, states);
    on_device.lse_views[1] = states.lses[1].view;
    Outcome outcome = on_device.merge(&handle_);
    EXPECT_EQ(test::mismatch(outcome, {HATTN_INVALID_ARGUMENT, {"lses[1]: is on cpu, but out is on opencl:0"}}), "");
    outcome = test::outcome_of(hattn_merge_states_in_queue(test::device_context(), &handle_, 1, &states.outs[0].view,
                                                           &states.lses[0].view, &states.out.view, &states.lse.view));
    EXPECT_EQ(test::mismatch(outcome, {HATTN_INVALID_ARGUMENT, {"queue: is given, but out is on cpu"}}), "");
    States wide(2, {1, 1, 1, 257}, 11);
    outcome = DeviceStates(*queue_, wide).merge(&handle_);
    EXPECT_EQ(test::mismatch(outcome, {HATTN_NOT_SUPPORTED, {"257", "256"}}), "");
    EXPECT_TRUE(states.untouched());
}

}  // namespace
