// Merging partial states, and everything that can be wrong about it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compare.h"
#include "input_data.h"
#include "random.h"
#include "support/attention_states.h"
#include "support/refusal.h"
#include "support/run.h"

namespace {

using namespace hattn;
using test::Refusal;
using test::States;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr hattn_status kInvalid = HATTN_INVALID_ARGUMENT;

std::string check(hattn_context *context, States &states) {
    states.clear();
    test::Outcome outcome = states.merge(context);
    if (!outcome.ok()) {
        return outcome.text();
    }
    cases::Expected expected = states.expected();
    return cases::difference("out", states.out.view, expected.out, expected.out_bound) +
           cases::difference("lse", states.lse.view, expected.lse, expected.lse_bound);
}

class MergeStates : public testing::Test {
protected:
    test::ContextPtr context_ = test::make_context();
};

TEST_F(MergeStates, AnyNumberOfAnyShape) {
    for (int32_t count : {1, 2, 3, 4, 7, 16, 33, 100}) {
        for (int64_t dim : {1, 7, 16, 65}) {
            States states(count, {2, 3, 5, dim}, static_cast<uint64_t>(count * 100 + dim));
            EXPECT_EQ(check(context_.get(), states), "") << count << " states of " << dim;
        }
    }
}

TEST_F(MergeStates, OneStateIsItself) {
    States states(1, {2, 3, 4, 9}, 1);
    EXPECT_EQ(check(context_.get(), states), "");
    EXPECT_TRUE(test::same_bits(cases::dense_floats(states.out.view), cases::dense_floats(states.outs[0].view)));
}

TEST_F(MergeStates, StridedStates) {
    States states(5, {2, 3, 6, 10}, 2, {0, 2, 1, 3});
    EXPECT_EQ(check(context_.get(), states), "");
}

TEST_F(MergeStates, EmptyExtents) {
    for (cases::Extents extents : {cases::Extents{0, 2, 3, 4}, {2, 2, 0, 4}}) {
        States states(3, extents, 3);
        EXPECT_TRUE(states.merge(context_.get()).ok());
    }
}

TEST_F(MergeStates, FarApartAndLarge) {
    States states(3, {1, 1, 1, 4}, 4);
    const float kLses[][3] = {
        {0.0f, 200.0f, -300.0f}, {1e4f, 9999.5f, -1e4f}, {-1e4f, -1e4f, -1e4f}, {1e30f, 0.0f, -1e30f}};
    for (const auto &values : kLses) {
        for (size_t n = 0; n < 3; ++n) {
            *states.lses[n].floats() = values[n];
        }
        EXPECT_EQ(check(context_.get(), states), "") << values[0];
    }
}

TEST_F(MergeStates, DeadStatesWeighNothingWhateverTheyHold) {
    constexpr float kGarbage[] = {NAN, kInf, -kInf, 1e38f};
    for (size_t dead = 0; dead < 4; ++dead) {
        States states(4, {1, 2, 3, 8}, 5 + dead);
        for (int64_t row = 0; row < 6; row += 2) {
            states.lses[dead].floats()[row] = -kInf;
            std::fill_n(states.outs[dead].floats() + row * 8, 8, kGarbage[dead]);
        }
        EXPECT_EQ(check(context_.get(), states), "") << "state " << dead;
    }
}

TEST_F(MergeStates, OnlyDeadStates) {
    for (int32_t count : {1, 5}) {
        States states(count, {1, 1, 2, 3}, 9);
        for (int32_t n = 0; n < count; ++n) {
            auto at = static_cast<size_t>(n);
            std::fill_n(states.lses[at].floats(), 2, -kInf);
            std::fill_n(states.outs[at].floats(), 6, NAN);
        }
        ASSERT_TRUE(states.merge(context_.get()).ok());
        EXPECT_EQ(cases::dense_floats(states.out.view), std::vector<float>(6, 0.0f));
        EXPECT_EQ(cases::dense_floats(states.lse.view), std::vector<float>(2, -kInf));
    }
}

// Attention over parts of the keys, merged, is attention over all of them.
TEST_F(MergeStates, AnySplitOfTheKeys) {
    cases::Case c;
    c.name = "split";
    c.batch = 2;
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = 7;
    c.kv_length = 300;
    test::Prepared whole(c);
    for (int32_t parts : {2, 3, 10}) {
        cases::Random random(static_cast<uint64_t>(parts));
        States states(parts, {c.batch, c.query_heads, c.query_length, c.value_dim}, 10);
        int64_t begin = 0;
        for (int32_t n = 0; n < parts; ++n) {
            int64_t end = n + 1 == parts ? c.kv_length : random.integer(begin, c.kv_length);  // parts may be empty
            hattn_attention_args args = whole.problem.args;
            hattn_attention_desc desc = whole.problem.desc;
            desc.kv_length = args.k.extent[2] = args.v.extent[2] = end - begin;
            args.k.data = whole.problem.k.floats() + begin * args.k.stride[2];
            args.v.data = whole.problem.v.floats() + begin * args.v.stride[2];
            args.out = states.outs[static_cast<size_t>(n)].view;
            args.lse = states.lses[static_cast<size_t>(n)].view;
            test::Outcome outcome = test::outcome_of(hattn_attention(context_.get(), &desc, &args), context_.get());
            ASSERT_TRUE(outcome.ok()) << outcome.text();
            begin = end;
        }
        ASSERT_TRUE(states.merge(context_.get()).ok());
        for (double &bound : whole.expected.out_bound) {
            bound += 1e-6;  // the merge itself
        }
        EXPECT_EQ(cases::difference("out", states.out.view, whole.expected.out, whole.expected.out_bound), "") << parts;
        EXPECT_EQ(cases::difference("lse", states.lse.view, whole.expected.lse, whole.expected.lse_bound), "") << parts;
    }
}

class MergeErrors : public testing::Test {
protected:
    std::string refused(int32_t count, const Refusal &refusal) {
        hattn_status status = hattn_merge_states(context_.get(), count, outs_, lses_, &out_, &lse_);
        std::string text = test::mismatch(test::outcome_of(status, context_.get()), refusal);
        outs_[0] = states_.outs[0].view;
        outs_[1] = states_.outs[1].view;
        lses_[0] = states_.lses[0].view;
        lses_[1] = states_.lses[1].view;
        out_ = states_.out.view;
        lse_ = states_.lse.view;
        return states_.untouched() ? text : text + "; outputs were written";
    }

    test::ContextPtr context_ = test::make_context();
    States states_{2, {2, 3, 5, 8}, 1};
    hattn_tensor outs_[2] = {states_.outs[0].view, states_.outs[1].view};
    hattn_tensor lses_[2] = {states_.lses[0].view, states_.lses[1].view};
    hattn_tensor out_ = states_.out.view, lse_ = states_.lse.view;
};

TEST_F(MergeErrors, CountAndPointers) {
    EXPECT_EQ(refused(0, {kInvalid, {"count", "0"}}), "");
    EXPECT_EQ(refused(-1, {kInvalid, {"count", "-1"}}), "");
    auto status = [&](hattn_status value, const char *argument) {
        return test::mismatch(test::outcome_of(value), {kInvalid, {argument}});
    };
    EXPECT_EQ(status(hattn_merge_states(nullptr, 2, outs_, lses_, &out_, &lse_), "context"), "");
    EXPECT_EQ(status(hattn_merge_states(context_.get(), 2, nullptr, lses_, &out_, &lse_), "outs"), "");
    EXPECT_EQ(status(hattn_merge_states(context_.get(), 2, outs_, nullptr, &out_, &lse_), "lses"), "");
    EXPECT_EQ(status(hattn_merge_states(context_.get(), 2, outs_, lses_, nullptr, &lse_), "out"), "");
    EXPECT_EQ(status(hattn_merge_states(context_.get(), 2, outs_, lses_, &out_, nullptr), "lse"), "");
    EXPECT_TRUE(states_.untouched());
}

TEST_F(MergeErrors, Tensors) {
    struct Target {
        hattn_tensor *tensor;
        const char *name;
    };
    for (auto [tensor, name] : {Target{&outs_[1], "outs[1]"}, {&lses_[1], "lses[1]"}, {&out_, "out"}, {&lse_, "lse"}}) {
        tensor->data = nullptr;
        EXPECT_EQ(refused(2, {kInvalid, {name}}), "");
        tensor->dtype = HATTN_INT32;
        EXPECT_EQ(refused(2, {kInvalid, {name}}), "");
        tensor->device = HATTN_CUDA;
        EXPECT_EQ(refused(2, {kInvalid, {"out", "cpu", "cuda:0"}}), "");
        tensor->struct_size = 0;
        EXPECT_EQ(refused(2, {kInvalid, {name, "struct_size", "0"}}), "");
        tensor->extent[0] = 3;
        EXPECT_EQ(refused(2, {kInvalid, {name, "3", "2"}}), "");
        tensor->extent[1] = 4;
        EXPECT_EQ(refused(2, {kInvalid, {name, "4", "3"}}), "");
        tensor->extent[2] = -1;
        EXPECT_EQ(refused(2, {kInvalid, {name, "-1"}}), "");
        tensor->extent[3] += 1;
        EXPECT_EQ(refused(2, {kInvalid, {name}}), "");
        tensor->stride[0] = std::numeric_limits<int64_t>::max() - 1;
        EXPECT_EQ(refused(2, {HATTN_OVERFLOW, {name}}), "");
    }
}

TEST_F(MergeErrors, Extents) {
    for (hattn_tensor *tensor : {&out_, &lse_, &outs_[0], &outs_[1], &lses_[0], &lses_[1]}) {
        tensor->extent[0] = 0;
        tensor->extent[2] = int64_t{1} << 30;
    }
    EXPECT_EQ(refused(2, {HATTN_OVERFLOW, {"out", "1073741824", "536870912"}}), "");
    for (hattn_tensor *tensor : {&out_, &outs_[0], &outs_[1]}) {
        tensor->extent[3] = 0;
    }
    EXPECT_EQ(refused(2, {kInvalid, {"out: extent[3]", "0", "1"}}), "");
}

TEST_F(MergeErrors, RowsTooFarApart) {
    constexpr int64_t kFar = (int64_t{1} << 23) + 1;
    for (hattn_tensor *tensor : {&out_, &lse_, &outs_[1], &lses_[1]}) {
        tensor->stride[2] = kFar;
        EXPECT_EQ(refused(2, {HATTN_NOT_SUPPORTED, {"stride[2]", "8388609", "8388608"}}), "");
    }
}

TEST_F(MergeErrors, Overlap) {
    out_.stride[1] = 0;
    EXPECT_EQ(refused(2, {kInvalid, {"out"}}), "");
    lse_.stride[2] = 0;
    EXPECT_EQ(refused(2, {kInvalid, {"lse"}}), "");
    out_.data = outs_[1].data;
    EXPECT_EQ(refused(2, {kInvalid, {"out", "outs[1]"}}), "");
    out_.data = static_cast<float *>(outs_[0].data) + 1;
    EXPECT_EQ(refused(2, {kInvalid, {"out", "outs[0]"}}), "");
    lse_.data = lses_[0].data;
    EXPECT_EQ(refused(2, {kInvalid, {"lse", "lses[0]"}}), "");
    lse_.data = static_cast<float *>(out_.data) + 2;
    EXPECT_EQ(refused(2, {kInvalid, {"lse", "out"}}), "");
}

}  // namespace
