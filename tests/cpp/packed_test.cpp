// Packed queries and keys: each sequence against the oracle, and the same bits as in a padded batch, alone, and for any
// number of threads.
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <tuple>

#include "case_list.h"
#include "packed_problem.h"
#include "support/run.h"
#include "support/targets.h"

namespace {

using namespace hattn;
using cases::PackedKeys;

// Prefill, chunks, decode and nothing at all in one batch, with keys or without.
cases::Case mixed_case(const std::string &name) {
    cases::Case c;
    c.name = name;
    c.batch = 7;
    c.query_heads = 6;
    c.kv_heads = 2;
    c.query_length = 130;
    c.kv_length = 1400;
    c.key_dim = 20;
    c.value_dim = 12;
    c.q_lengths = {1, 130, 0, 40, 1, 3, 2};
    c.kv_lengths = {1400, 130, 17, 600, 1, 0, 513};
    c.causal = true;
    return c;
}

// More tasks than a wave of the scheduler holds.
cases::Case many_sequences() {
    cases::Case c;
    c.name = "many_sequences";
    c.batch = 2500;
    c.query_heads = c.kv_heads = 2;
    c.query_length = c.kv_length = 6;
    c.key_dim = c.value_dim = 8;
    for (int32_t b = 0; b < 2500; ++b) {
        c.q_lengths.push_back(b % 4 == 0 ? 6 : b % 4 == 1 ? 0 : 1);
        c.kv_lengths.push_back(b % 7);
    }
    return c;
}

std::vector<cases::Case> mixed_cases() {
    std::vector<cases::Case> list = {mixed_case("mixed_causal"), mixed_case("mixed_options"),
                                     mixed_case("mixed_broadcast_operands"), many_sequences()};
    cases::Case &options = list[1];
    options.layout = cases::Layout::kBshd;
    options.window_left = 300;
    options.softcap = 5.0f;
    options.bias = cases::varying("hqk");
    options.mask = cases::varying("bqk");
    options.alibi = true;
    options.sinks = cases::Sinks::kNormal;
    options.causal_offsets = {1399, 0, 3, 500, 0, -1, 600};
    cases::Case &broadcast = list[2];
    broadcast.bias = cases::varying("bhk");
    broadcast.mask = cases::varying("bk");
    return list;
}

// All that have no score output, which packed queries do not have yet.
std::vector<const cases::Case *> packable_cases() {
    static const std::vector<cases::Case> mixed = mixed_cases();
    std::vector<const cases::Case *> list;
    for (const auto *family : {&mixed, &cases::all_cases()}) {
        for (const cases::Case &c : *family) {
            if (c.scores == HATTN_SCORES_NONE) {
                list.push_back(&c);
            }
        }
    }
    return list;
}

test::Outcome run_packed(hattn_context *context, cases::PackedProblem &packed, hattn_algorithm algorithm,
                         int32_t threads = 0) {
    hattn_attention_desc desc = packed.desc;
    desc.algorithm = algorithm;
    desc.threads = threads;
    cases::fill_bytes(packed.out, cases::Problem::kOutputFill);
    if (packed.lse.given()) {
        cases::fill_bytes(packed.lse, cases::Problem::kOutputFill);
    }
    return test::execute(test::make_plan(context, desc).get(), packed.args);
}

// out and lse of some rows.
std::vector<float> outputs(const hattn_attention_args &args) {
    std::vector<float> values = cases::dense_floats(args.out);
    if (args.lse.data) {
        const std::vector<float> lse = cases::dense_floats(args.lse);
        values.insert(values.end(), lse.begin(), lse.end());
    }
    return values;
}

// The rows of one sequence in the padded problem.
std::vector<float> padded_outputs(const cases::Problem &padded, int64_t sequence, int64_t rows) {
    hattn_attention_args args = padded.args;
    for (hattn_tensor *tensor : {&args.out, &args.lse}) {
        if (tensor->data) {
            tensor->data = &cases::element<float>(*tensor, sequence, 0, 0, 0);
            tensor->extent[0] = 1;
            tensor->extent[2] = rows;
        }
    }
    return outputs(args);
}

using Param = std::tuple<const cases::Case *, std::string, PackedKeys>;

std::string name_of(const testing::TestParamInfo<Param> &run) {
    const auto &[spec, target, keys] = run.param;
    return spec->name + "__" + test::as_test_name(target) + (keys == PackedKeys::kYes ? "__packed_keys" : "");
}

class Packed : public testing::TestWithParam<Param> {};

TEST_P(Packed, MatchesOracleAndPadded) {
    const auto &[spec, target, packed_keys] = GetParam();
    const test::TargetContext &implementation = test::context_for(target);
    if (!implementation.context) {
        GTEST_SKIP() << target << ": " << implementation.why_not;
    }
    hattn_context *context = implementation.context.get();
    cases::Problem padded(*spec);
    cases::PackedProblem packed(padded, packed_keys);
    for (hattn_algorithm algorithm : {HATTN_ALGORITHM_AUTO, HATTN_ALGORITHM_FLASH, HATTN_ALGORITHM_SPLIT_KV}) {
        SCOPED_TRACE(test::algorithm_name(algorithm));
        test::Outcome outcome = test::run(context, padded, algorithm);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        outcome = run_packed(context, packed, algorithm);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        EXPECT_EQ(outcome.allocations, 0u);
        for (int64_t b = 0; b < spec->batch; ++b) {
            const cases::PackedProblem::Alone alone = packed.alone(b);
            const std::vector<float> rows = outputs(alone.args);
            EXPECT_TRUE(test::same_bits(rows, padded_outputs(padded, b, alone.args.q.extent[2]))) << "sequence " << b;
            if (algorithm == HATTN_ALGORITHM_AUTO) {
                const cases::Expected expected = cases::evaluate(alone.desc, alone.args);
                EXPECT_EQ(cases::difference("out", alone.args.out, expected.out, expected.out_bound), "") << b;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Packed,
                         testing::Combine(testing::ValuesIn(packable_cases()), testing::ValuesIn(test::target_names()),
                                          testing::Values(PackedKeys::kNo, PackedKeys::kYes)),
                         name_of);

class PackedInvariance : public testing::TestWithParam<std::tuple<cases::Case, hattn_algorithm>> {
protected:
    test::ContextPtr context_ = test::make_context(1);
    cases::Problem padded_{std::get<0>(GetParam())};
    cases::PackedProblem packed_{padded_, PackedKeys::kYes};
    hattn_algorithm algorithm_ = std::get<1>(GetParam());
};

TEST_P(PackedInvariance, AgainstThreadsAndCapacities) {
    ASSERT_TRUE(run_packed(context_.get(), packed_, algorithm_, 1).ok());
    const std::vector<float> reference = outputs(packed_.args);
    for (int32_t threads : {2, 3, 7}) {
        ASSERT_TRUE(run_packed(context_.get(), packed_, algorithm_, threads).ok());
        EXPECT_TRUE(test::same_bits(outputs(packed_.args), reference)) << threads << " threads";
    }
    packed_.desc.packed_queries += 500;
    packed_.desc.query_length += 70;
    packed_.desc.kv_length += 900;
    ASSERT_TRUE(run_packed(context_.get(), packed_, algorithm_).ok());
    EXPECT_TRUE(test::same_bits(outputs(packed_.args), reference)) << "larger plan";
}

TEST_P(PackedInvariance, AgainstTheBatchASequenceIsIn) {
    ASSERT_TRUE(run_packed(context_.get(), packed_, algorithm_).ok());
    for (int64_t b = 0; b < padded_.spec.batch; ++b) {
        cases::PackedProblem::Alone alone = packed_.alone(b);
        const std::vector<float> together = outputs(alone.args);
        cases::TensorData out = cases::make_tensor(HATTN_FLOAT32, cases::extents_of(alone.args.out));
        cases::TensorData lse = cases::make_tensor(HATTN_FLOAT32, cases::extents_of(alone.args.lse));
        alone.args.out = out.view;
        alone.args.lse = lse.view;
        alone.desc.algorithm = algorithm_;
        const test::Outcome outcome = test::execute(test::make_plan(context_.get(), alone.desc).get(), alone.args);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        EXPECT_TRUE(test::same_bits(outputs(alone.args), together)) << "sequence " << b;
    }
}

INSTANTIATE_TEST_SUITE_P(Mixed, PackedInvariance,
                         testing::Combine(testing::ValuesIn(mixed_cases()),
                                          testing::Values(HATTN_ALGORITHM_AUTO, HATTN_ALGORITHM_NAIVE,
                                                          HATTN_ALGORITHM_FLASH, HATTN_ALGORITHM_SPLIT_KV)),
                         [](const auto &run) {
                             return std::get<0>(run.param).name + "__" + test::algorithm_name(std::get<1>(run.param));
                         });

// Not by the capacity of every sequence: tasks for 300 rows in all, not for 8 times 256.
TEST(PackedPlan, IsSizedByItsRows) {
    test::ContextPtr context = test::make_context(1);
    cases::Case c;
    c.name = "sized";
    c.batch = 8;
    c.query_length = 256;
    c.kv_length = 500;
    hattn_attention_desc desc = cases::desc_of(c);
    size_t padded = 0, packed = 0;
    ASSERT_EQ(hattn_plan_workspace_size(test::make_plan(context.get(), desc).get(), &padded), HATTN_OK);
    desc.packed_queries = 300;
    ASSERT_EQ(hattn_plan_workspace_size(test::make_plan(context.get(), desc).get(), &packed), HATTN_OK);
    EXPECT_LT(packed, padded);
}

}  // namespace
