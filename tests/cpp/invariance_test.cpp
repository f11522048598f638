// Results do not depend, to the bit, on threads, on who runs the tasks, on a plan's capacities, or on the batch a
// sequence is in.
#include <gtest/gtest.h>

#include <atomic>
#include <ostream>
#include <thread>

#include "case_list.h"
#include "support/run.h"

namespace {

using namespace hattn;

// Ragged, with every option that could tell sequences apart.
std::vector<cases::Case> ragged_cases() {
    std::vector<cases::Case> list;
    for (int64_t query_length : {1, 6, 70}) {
        cases::Case c;
        c.name = "ragged_" + std::to_string(query_length);
        c.batch = 4;
        c.query_heads = 6;
        c.kv_heads = 2;
        c.query_length = query_length;
        c.kv_length = 700;
        c.key_dim = 24;
        c.value_dim = 20;
        c.kv_lengths = {700, 3, 513, 260};
        c.causal = true;
        list.push_back(c);
        c.name += "_options";
        auto rows = static_cast<int32_t>(query_length);
        c.q_lengths = {rows, rows, (rows + 1) / 2, rows};
        c.causal_offsets = {600, 1, 200, 259};
        c.window_left = 300;
        c.softcap = 5.0f;
        c.bias = cases::varying("hk");
        c.mask = cases::varying("qk");
        c.alibi = true;
        c.sinks = cases::Sinks::kNormal;
        list.push_back(c);
    }
    // Of heads and lengths that have kernels for long prompts.
    cases::Case wide = list.front();
    wide.name = "ragged_70_wide";
    wide.query_length = 70;
    wide.key_dim = wide.value_dim = 96;
    list.push_back(wide);
    return list;
}

using Param = std::tuple<cases::Case, hattn_algorithm>;

std::string name_of(const testing::TestParamInfo<Param> &run) {
    return std::get<0>(run.param).name + "__" + test::algorithm_name(std::get<1>(run.param));
}

class Invariance : public testing::TestWithParam<Param> {
protected:
    void SetUp() override {
        test::Outcome outcome = test::run(context_.get(), problem_, algorithm_);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        reference_ = test::output_values(problem_);
    }

    std::vector<float> values(hattn_context *context, cases::Problem &problem, int32_t threads = 0) {
        test::Outcome outcome = test::run(context, problem, algorithm_, threads);
        EXPECT_TRUE(outcome.ok()) << outcome.text();
        return test::output_values(problem);
    }

    test::ContextPtr context_ = test::make_context(1);
    cases::Problem problem_{std::get<0>(GetParam())};
    hattn_algorithm algorithm_ = std::get<1>(GetParam());
    std::vector<float> reference_;
};

TEST_P(Invariance, AgainstRunningTwice) {
    EXPECT_TRUE(test::same_bits(values(context_.get(), problem_), reference_));
}

TEST_P(Invariance, AgainstThreads) {
    for (int32_t threads : {2, 3, 7}) {
        EXPECT_TRUE(test::same_bits(values(context_.get(), problem_, threads), reference_))
            << threads << " by the plan";
        test::ContextPtr other = test::make_context(threads);
        EXPECT_TRUE(test::same_bits(values(other.get(), problem_), reference_)) << threads << " by the context";
    }
}

void run_backwards(void *, int32_t count, void (*task)(void *, int32_t), void *closure) {
    for (int32_t i = count - 1; i >= 0; --i) {
        task(closure, i);
    }
}

void run_on_many_threads(void *, int32_t count, void (*task)(void *, int32_t), void *closure) {
    std::atomic<int32_t> next{0};
    auto work = [&] {
        for (int32_t i = next++; i < count; i = next++) {
            task(closure, i);
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 5; ++i) {
        threads.emplace_back(work);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

TEST_P(Invariance, AgainstTheParallelFor) {
    for (hattn_parallel_for parallel_for : {run_backwards, run_on_many_threads}) {
        hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
        desc.threads = 4;
        desc.parallel_for = parallel_for;
        test::NewContext created = test::new_context("", &desc);
        ASSERT_TRUE(created.outcome.ok()) << created.outcome.text();
        EXPECT_TRUE(test::same_bits(values(created.context.get(), problem_), reference_));
    }
}

TEST_P(Invariance, AgainstTheCapacitiesOfThePlan) {
    hattn_attention_desc desc = problem_.desc;
    desc.algorithm = algorithm_;
    desc.query_length += 33;
    desc.kv_length += 1000;
    test::PlanPtr plan = test::make_plan(context_.get(), desc);
    problem_.fill_outputs();
    test::Outcome outcome = test::execute(plan.get(), problem_.args);
    ASSERT_TRUE(outcome.ok()) << outcome.text();
    EXPECT_TRUE(test::same_bits(test::output_values(problem_), reference_));
}

void take_sequence(hattn_tensor &tensor, int64_t b) {
    if (tensor.data && tensor.extent[0] > 1) {
        tensor.data = static_cast<char *>(tensor.data) +
                      b * tensor.stride[0] * static_cast<int64_t>(cases::element_size(tensor.dtype));
    }
    tensor.extent[0] = 1;
}

// Sequence b alone, as a batch of one, with everything cropped to its own lengths.
TEST_P(Invariance, AgainstTheBatchASequenceIsIn) {
    for (int64_t b = 0; b < problem_.spec.batch; ++b) {
        hattn_attention_desc desc = problem_.desc;
        hattn_attention_args args = problem_.args;
        desc.batch = 1;
        desc.algorithm = algorithm_;
        problem_.fill_outputs();
        for (hattn_tensor *tensor : {&args.q, &args.k, &args.v, &args.out, &args.lse, &args.bias, &args.mask}) {
            take_sequence(*tensor, b);
        }
        auto at = static_cast<size_t>(b);
        const std::vector<int32_t> &kv_lengths = problem_.spec.kv_lengths;
        args.kv_lengths = nullptr;
        args.k.extent[2] = args.v.extent[2] = desc.kv_length = kv_lengths[at];
        if (problem_.spec.bias.given) {
            args.bias.extent[3] = args.mask.extent[3] = kv_lengths[at];
        }
        args.q_lengths = args.q_lengths ? args.q_lengths + b : nullptr;
        args.causal_offsets = args.causal_offsets ? args.causal_offsets + b : nullptr;
        test::PlanPtr plan = test::make_plan(context_.get(), desc);
        test::Outcome outcome = test::execute(plan.get(), args);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        std::vector<float> out = cases::dense_floats(args.out), lse = cases::dense_floats(args.lse);
        auto out_begin = reference_.begin() + b * static_cast<int64_t>(out.size());
        auto lse_begin = reference_.begin() + problem_.spec.batch * static_cast<int64_t>(out.size()) +
                         b * static_cast<int64_t>(lse.size());
        EXPECT_TRUE(test::same_bits(out, {out_begin, out_begin + static_cast<int64_t>(out.size())}))
            << "sequence " << b;
        EXPECT_TRUE(test::same_bits(lse, {lse_begin, lse_begin + static_cast<int64_t>(lse.size())}))
            << "sequence " << b;
    }
}

INSTANTIATE_TEST_SUITE_P(All, Invariance,
                         testing::Combine(testing::ValuesIn(ragged_cases()), testing::ValuesIn(test::kAlgorithms)),
                         name_of);

}  // namespace
