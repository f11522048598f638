// The oracle, the cases and the comparison themselves, against values worked out by hand and properties that attention
// has.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "case_list.h"
#include "compare.h"

namespace {

using namespace hattn::cases;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kClose = 1e-6;  // inputs are single precision

// One head, one row, keys of one element: scores are scale * q * k[j], and v[j] = j.
Case tiny(int64_t keys) {
    Case c;
    c.name = "tiny";
    c.query_heads = 1;
    c.query_length = 1;
    c.kv_length = keys;
    c.key_dim = c.value_dim = 1;
    c.scale = 1.0f;
    return c;
}

void set_keys(Problem &problem, std::initializer_list<float> scores) {
    *problem.q.floats() = 1.0f;
    int64_t j = 0;
    for (float score : scores) {
        problem.k.floats()[j] = score;
        problem.v.floats()[j] = static_cast<float>(j);
        ++j;
    }
}

Expected expected_of(const Problem &problem) {
    return evaluate(problem.desc, problem.args);
}

TEST(Oracle, TwoKeys) {
    Problem problem(tiny(2));
    set_keys(problem, {0.0f, std::log(3.0f)});
    Expected expected = expected_of(problem);
    EXPECT_NEAR(expected.out[0], 0.75, kClose);
    EXPECT_NEAR(expected.lse[0], std::log(4.0), kClose);
}

TEST(Oracle, DefaultScaleIsInverseRootOfDim) {
    Case c = tiny(2);
    c.scale = NAN;
    c.key_dim = 4;
    Problem problem(c);
    for (int64_t d = 0; d < 4; ++d) {
        problem.q.floats()[d] = 1.0f;
        problem.k.floats()[d] = 0.0f;
        problem.k.floats()[4 + d] = 1.0f;  // q.k = 4, times 1/2
    }
    EXPECT_NEAR(expected_of(problem).lse[0], std::log(1.0 + std::exp(2.0)), kClose);
}

TEST(Oracle, SinkIsAKeyWithoutValue) {
    Case c = tiny(2);
    c.sinks = Sinks::kSmooth;
    Problem problem(c);
    set_keys(problem, {0.0f, std::log(2.0f)});
    Expected expected = expected_of(problem);
    EXPECT_NEAR(expected.out[0], 2.0 / 4.0, kClose);
    EXPECT_NEAR(expected.lse[0], std::log(4.0), kClose);
}

TEST(Oracle, SoftcapBiasAndAlibiInOrder) {
    Case c = tiny(2);
    c.softcap = 2.0f;
    c.bias = varying("k");
    c.alibi = true;
    c.scores = HATTN_SCORES_MASKED;
    Problem problem(c);
    set_keys(problem, {1.0f, -3.0f});
    problem.bias.floats()[0] = 0.25f;
    problem.bias.floats()[1] = 0.5f;
    problem.alibi_slopes = {0.125f};
    problem.bind();
    Expected expected = expected_of(problem);  // the row's position is 1
    EXPECT_NEAR(expected.scores[0], 2.0 * std::tanh(0.5) + 0.25 - 0.125, kClose);
    EXPECT_NEAR(expected.scores[1], 2.0 * std::tanh(-1.5) + 0.5, kClose);
}

TEST(Oracle, CausalCountsFromTheEndOfTheKeys) {
    Case c = tiny(4);
    c.query_length = 3;
    c.causal = true;
    Problem problem(c);
    EXPECT_TRUE(sees(problem.desc, problem.args, 0, 0, 0, 1));
    EXPECT_FALSE(sees(problem.desc, problem.args, 0, 0, 0, 2));
    EXPECT_TRUE(sees(problem.desc, problem.args, 0, 0, 2, 3));
    problem.spec.causal_offsets = {-1};
    problem.bind();
    EXPECT_FALSE(sees(problem.desc, problem.args, 0, 0, 0, 0));
    EXPECT_TRUE(sees(problem.desc, problem.args, 0, 0, 1, 0));
}

TEST(Oracle, WindowIsInclusiveOnBothSides) {
    Case c = tiny(9);
    c.window_left = 2;
    c.window_right = 1;
    c.causal_offsets = {4};
    Problem problem(c);
    for (int64_t j = 0; j < 9; ++j) {
        EXPECT_EQ(sees(problem.desc, problem.args, 0, 0, 0, j), j >= 2 && j <= 5) << j;
    }
}

TEST(Oracle, RowsWithoutKeys) {
    Case c = tiny(3);
    c.query_length = 2;
    c.q_lengths = {1};
    c.kv_lengths = {0};
    Problem problem(c);
    Expected expected = expected_of(problem);
    EXPECT_EQ(expected.out, (std::vector<double>{0.0, 0.0}));
    EXPECT_EQ(expected.lse, (std::vector<double>{-kInfinity, -kInfinity}));
    c.sinks = Sinks::kSmooth;
    Problem with_sink(c);  // the second row is past the sequence, where even a sink does not count
    expected = expected_of(with_sink);
    EXPECT_EQ(expected.out, (std::vector<double>{0.0, 0.0}));
    EXPECT_EQ(expected.lse, (std::vector<double>{0.0, -kInfinity}));
}

TEST(Oracle, ScoreOutputsOutsideTheLengths) {
    Case c = tiny(2);
    c.kv_lengths = {1};
    const std::pair<hattn_scores, double> kOutside[] = {{HATTN_SCORES_RAW, 0.0},
                                                        {HATTN_SCORES_CAPPED, 0.0},
                                                        {HATTN_SCORES_MASKED, -kInfinity},
                                                        {HATTN_SCORES_PROBABILITIES, 0.0}};
    for (auto [mode, outside] : kOutside) {
        c.scores = mode;
        Problem problem(c);
        set_keys(problem, {2.0f, 5.0f});
        Expected expected = expected_of(problem);
        EXPECT_EQ(expected.scores[1], outside) << mode;
        EXPECT_NEAR(expected.scores[0], mode == HATTN_SCORES_PROBABILITIES ? 1.0 : 2.0, kClose) << mode;
    }
}

TEST(Oracle, ProbabilitiesSumToOneAndGiveTheOutput) {
    for (const Case &c : all_cases()) {
        bool hides_data = c.data == Data::kPoisonHidden || c.data == Data::kPoisonPartlySeen;
        if (c.scores != HATTN_SCORES_PROBABILITIES || c.sinks != Sinks::kNone || hides_data) {
            continue;
        }
        Problem problem(c);
        Expected expected = expected_of(problem);
        auto keys = static_cast<size_t>(c.kv_length);
        for (size_t row = 0; row < expected.lse.size(); ++row) {
            double sum = 0.0;
            for (size_t j = 0; j < keys; ++j) {
                sum += expected.scores[row * keys + j];
            }
            EXPECT_NEAR(sum, expected.lse[row] == -kInfinity ? 0.0 : 1.0, 1e-9) << describe(c);
        }
    }
}

TEST(Oracle, PoisonDoesNotReachAnyRowThatMayNotSeeIt) {
    for (const Case &c : all_cases()) {
        if (c.data != Data::kPoisonHidden) {
            continue;
        }
        Problem problem(c);
        Expected expected = expected_of(problem);
        for (double value : expected.out) {
            ASSERT_TRUE(std::isfinite(value)) << describe(c);
        }
        for (double value : expected.lse) {
            ASSERT_FALSE(std::isnan(value)) << describe(c);
        }
    }
}

TEST(Cases, HaveDistinctNamesThatTestsCanCarry) {
    std::set<std::string> names;
    for (const Case &c : all_cases()) {
        EXPECT_TRUE(names.insert(c.name).second) << c.name;
        EXPECT_EQ(c.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), std::string::npos) << c.name;
    }
    EXPECT_GT(names.size(), 600u);
}

TEST(Cases, GiveTheSameDataEachTime) {
    const Case &c = all_cases().front();
    EXPECT_EQ(dense_floats(Problem(c).q.view), dense_floats(Problem(c).q.view));
    Case other = c;
    other.name += "_other";
    EXPECT_NE(dense_floats(Problem(c).q.view), dense_floats(Problem(other).q.view));
}

TEST(Cases, ExactOnesAreExactInSinglePrecision) {
    for (const Case &c : all_cases()) {
        if (c.tolerance != Tolerance::kExact) {
            continue;
        }
        Problem problem(c);
        for (double value : expected_of(problem).out) {
            ASSERT_EQ(value, static_cast<double>(static_cast<float>(value))) << describe(c);
        }
    }
}

TEST(Difference, SeesWhatIsOffAndOnlyThat) {
    TensorData actual = make_tensor(HATTN_FLOAT32, {1, 1, 2, 2});
    const std::vector<double> expected = {1.0, -kInfinity, std::nan(""), 2.0};
    const std::vector<double> bound = {0.5, 0.0, 0.0, 0.0};
    auto set = [&](std::initializer_list<float> values) { std::copy(values.begin(), values.end(), actual.floats()); };
    constexpr float kInf = std::numeric_limits<float>::infinity();
    set({1.25f, -kInf, 7.0f, 2.0f});
    EXPECT_EQ(difference("x", actual.view, expected, bound), "");
    for (auto values : {std::initializer_list<float>{1.75f, -kInf, 7.0f, 2.0f},
                        {NAN, -kInf, 7.0f, 2.0f},
                        {1.0f, kInf, 7.0f, 2.0f},
                        {1.0f, -1e30f, 7.0f, 2.0f},
                        {1.0f, -kInf, 7.0f, 2.0000002f}}) {
        set(values);
        EXPECT_NE(difference("x", actual.view, expected, bound).find("1 of 4 elements"), std::string::npos);
    }
}

TEST(Difference, SeesWritesBetweenTheElements) {
    Case c = tiny(2);
    c.layout = Layout::kPadded;
    Problem problem(c);
    EXPECT_TRUE(problem.output_gaps_hold());
    problem.out.floats()[1] = 0.0f;
    EXPECT_FALSE(problem.output_gaps_hold());
}

}  // namespace
