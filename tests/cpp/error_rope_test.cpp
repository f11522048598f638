// Every argument of hattn_rope_apply() and every member of hattn_rope, wrong in each way.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "input_data.h"
#include "support/refusal.h"
#include "tensor_data.h"

namespace {

using namespace hattn;
using test::Refusal;

constexpr hattn_status kInvalid = HATTN_INVALID_ARGUMENT;

class RopeErrors : public testing::Test {
protected:
    RopeErrors() {
        hattn_rope_init(&rope_);
        cases::fill_bytes(x_, 0);
        cases::fill_bytes(out_, kFill);
    }

    std::string refused(const Refusal &refusal, const int32_t *offsets = nullptr, const int32_t *lengths = nullptr) {
        const hattn_status status = hattn_rope_apply(context_.get(), &rope_, &x_.view, &out_.view, offsets, lengths);
        return judge(status, refusal);
    }

    std::string judge(hattn_status status, const Refusal &refusal) {
        const std::string text = test::mismatch(test::outcome_of(status, context_.get()), refusal);
        return cases::all_bytes_hold(out_, kFill) ? text : text + "; out was written";
    }

    static constexpr unsigned char kFill = 0xa5;
    test::ContextPtr context_ = test::make_context();
    cases::TensorData x_ = cases::make_tensor(HATTN_FLOAT32, {2, 3, 4, 8});
    cases::TensorData out_ = cases::make_tensor(HATTN_FLOAT32, {2, 3, 4, 8});
    float table_[4 * 3] = {};  // 3 positions of 4 pairs
    hattn_rope rope_;
};

TEST_F(RopeErrors, NullPointers) {
    const hattn_tensor &x = x_.view, &out = out_.view;
    EXPECT_EQ(judge(hattn_rope_apply(nullptr, &rope_, &x, &out, nullptr, nullptr), {kInvalid, {"context"}}), "");
    EXPECT_EQ(judge(hattn_rope_apply(context_.get(), nullptr, &x, &out, nullptr, nullptr), {kInvalid, {"rope"}}), "");
    EXPECT_EQ(judge(hattn_rope_apply(context_.get(), &rope_, nullptr, &out, nullptr, nullptr), {kInvalid, {"x"}}), "");
    EXPECT_EQ(judge(hattn_rope_apply(context_.get(), &rope_, &x, nullptr, nullptr, nullptr), {kInvalid, {"out"}}), "");
    hattn_rope_init(nullptr);
}

TEST_F(RopeErrors, Members) {
    const hattn_rope good = rope_;
    auto spoilt = [&](auto spoil, const Refusal &refusal) {
        rope_ = good;
        spoil(rope_);
        return refused(refusal);
    };
    const std::string size = std::to_string(sizeof(hattn_rope)), larger = std::to_string(sizeof(hattn_rope) + 8);
    EXPECT_EQ(spoilt([](hattn_rope &r) { r.struct_size += 8; }, {kInvalid, {"rope.struct_size", larger, size}}), "");
    EXPECT_EQ(spoilt([](hattn_rope &r) { r.style = test::unknown<hattn_rope_style>(2); }, {kInvalid, {"style", "2"}}),
              "");
    for (int64_t dim : {-2, 3, 10}) {
        EXPECT_EQ(
            spoilt([=](hattn_rope &r) { r.rotary_dim = dim; }, {kInvalid, {"rotary_dim", std::to_string(dim), "8"}}),
            "");
    }
    EXPECT_EQ(spoilt([](hattn_rope &r) { r.base = -1; }, {kInvalid, {"rope.base", "-1"}}), "");
    EXPECT_EQ(spoilt([](hattn_rope &r) { r.base = NAN; }, {kInvalid, {"rope.base", "nan"}}), "");
    EXPECT_EQ(spoilt([](hattn_rope &r) { r.scaling_factor = 0; }, {kInvalid, {"scaling_factor", "0"}}), "");
    EXPECT_EQ(spoilt([&](hattn_rope &r) { r.cos_table = table_; }, {kInvalid, {"cos_table", "sin_table", "null"}}), "");
    EXPECT_EQ(spoilt([&](hattn_rope &r) { r.sin_table = table_; }, {kInvalid, {"cos_table", "sin_table", "null"}}), "");
    EXPECT_EQ(spoilt(
                  [&](hattn_rope &r) {
                      r.cos_table = r.sin_table = table_;
                      r.table_positions = 3;
                  },
                  {kInvalid, {"row", "sequence", "3", "2"}}),
              "");
    for (const int64_t stride : {int64_t{-1}, int64_t{1} << 60}) {
        const int32_t positions[64] = {};
        EXPECT_EQ(spoilt(
                      [&](hattn_rope &r) {
                          r.positions = positions;
                          r.positions_stride = stride;
                      },
                      {kInvalid, {"positions_stride", std::to_string(stride)}}),
                  "");
    }
    EXPECT_EQ(spoilt([](hattn_rope &r) { r.table_positions = -1; }, {kInvalid, {"table_positions", "-1"}}), "");
}

TEST_F(RopeErrors, MembersAreCheckedWhereThereIsNothingToTurn) {
    x_.view.extent[2] = out_.view.extent[2] = 0;
    EXPECT_EQ(hattn_rope_apply(context_.get(), &rope_, &x_.view, &out_.view, nullptr, nullptr), HATTN_OK);
    rope_.rotary_dim = 3;
    EXPECT_EQ(refused({kInvalid, {"rotary_dim", "3", "8"}}), "");
    rope_.rotary_dim = 0;
    rope_.base = -1;
    EXPECT_EQ(refused({kInvalid, {"rope.base", "-1"}}), "");
}

TEST_F(RopeErrors, Vectors) {
    const int32_t offsets[2] = {0, -3}, far[2] = {std::numeric_limits<int32_t>::max(), 0};
    const int32_t lengths[2] = {4, 5}, negative[2] = {-1, 0};
    EXPECT_EQ(refused({kInvalid, {"sequence", "1", "-3"}}, offsets), "");
    EXPECT_EQ(refused({kInvalid, {"2147483647", "536870912"}}, far), "");
    EXPECT_EQ(refused({kInvalid, {"lengths[1]", "5", "4"}}, nullptr, lengths), "");
    EXPECT_EQ(refused({kInvalid, {"lengths[0]", "-1", "4"}}, nullptr, negative), "");
    const int32_t positions[4] = {0, 7, -1, 2};
    rope_.positions = positions;
    EXPECT_EQ(refused({kInvalid, {"rope.positions", "row", "2", "sequence", "0", "-1"}}), "");
    const int32_t two[2] = {2, 2};
    EXPECT_EQ(hattn_rope_apply(context_.get(), &rope_, &x_.view, &out_.view, nullptr, two), HATTN_OK);
}

TEST_F(RopeErrors, Tensors) {
    auto spoilt = [&](auto spoil, const Refusal &refusal) {
        hattn_tensor x = x_.view, out = out_.view;
        spoil(x, out);
        return judge(hattn_rope_apply(context_.get(), &rope_, &x, &out, nullptr, nullptr), refusal);
    };
    using T = hattn_tensor;
    EXPECT_EQ(spoilt([](T &x, T &) { x.data = nullptr; }, {kInvalid, {"x", "null"}}), "");
    EXPECT_EQ(spoilt([](T &, T &out) { out.dtype = HATTN_INT32; }, {kInvalid, {"out", "int32"}}), "");
    EXPECT_EQ(spoilt([](T &x, T &) { x.dtype = HATTN_INT8; }, {kInvalid, {"x", "int8", "float16"}}), "");
    EXPECT_EQ(spoilt([](T &, T &out) { out.dtype = HATTN_FLOAT16; }, {kInvalid, {"out", "float16", "float32"}}), "");
    EXPECT_EQ(spoilt([](T &x, T &) { x.stride[3] = 2; }, {kInvalid, {"x", "2"}}), "");
    EXPECT_EQ(spoilt([](T &, T &out) { out.stride[1] = 0; }, {kInvalid, {"out", "0"}}), "");
    for (const int d : {0, 2, 3}) {
        const auto stretch = [d](T &x, T &out) {
            x.extent[1] = out.extent[1] = 0;
            x.extent[d] = out.extent[d] = int64_t{1} << 62;
        };
        EXPECT_EQ(spoilt(stretch, {HATTN_OVERFLOW, {"x", "4611686018427387904", "536870912"}}), "");
    }
    EXPECT_EQ(spoilt([](T &, T &out) { out.extent[2] = 3; }, {kInvalid, {"out", "3", "4"}}), "");
    EXPECT_EQ(
        spoilt([](T &x, T &out) { out.data = static_cast<float *>(x.data) + 8; }, {kInvalid, {"out", "overlaps"}}), "");
    EXPECT_EQ(spoilt(
                  [](T &x, T &out) {
                      out = x;
                      out.stride[0] = 8;  // the same memory in another order
                      out.stride[2] = 24;
                      out.stride[1] = 200;
                  },
                  {kInvalid, {"out"}}),
              "");
}

}  // namespace
