// The tuner's parts, and the whole of it on a small problem.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "cost_model.h"
#include "space.h"
#include "statistics.h"
#include "tuner.h"

namespace {

using namespace hattn::autotune;
using nlohmann::json;

TEST(Statistics, Median) {
    EXPECT_EQ(median({}), 0.0);
    EXPECT_EQ(median({3.0}), 3.0);
    EXPECT_EQ(median({9.0, 1.0, 2.0}), 2.0);
    EXPECT_EQ(median({4.0, 1.0, 1000.0, 2.0}), 3.0);
}

TEST(Statistics, OutliersHardlyMoveTheUncertainty) {
    std::vector<double> calm, disturbed;
    for (int i = 0; i < 40; ++i) {
        calm.push_back(std::sin(i));
        disturbed.push_back(i % 10 == 0 ? 100.0 : std::sin(i));
    }
    EXPECT_GT(uncertainty(calm), 0.0);
    EXPECT_LT(uncertainty(disturbed), 1.5 * uncertainty(calm));
    EXPECT_EQ(uncertainty({2.0, 2.0, 2.0}), 0.0);
    // Four times as many values, half of the error.
    std::vector<double> more;
    for (int copy = 0; copy < 4; ++copy) {
        more.insert(more.end(), calm.begin(), calm.end());
    }
    EXPECT_NEAR(uncertainty(more), uncertainty(calm) / 2.0, 1e-12);
}

TEST(Statistics, RankCorrelation) {
    EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3, 4}, {10, 100, 1000, 10000}), 1.0);
    EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3, 4}, {4, 3, 2, 1}), -1.0);
    EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3, 4}, {2, 1, 4, 3}), 0.6);
    EXPECT_DOUBLE_EQ(rank_correlation({1, 1, 1}, {1, 2, 3}), 0.0) << "all ranks tie";
    EXPECT_DOUBLE_EQ(rank_correlation({1, 2}, {1, 2}), 0.0) << "too few";
}

Shape some_shape(int64_t rows, int64_t keys, int64_t group = 4) {
    Shape shape;
    shape.query_heads = 2 * group;
    shape.kv_heads = 2;
    shape.query_length = rows;
    shape.kv_length = keys;
    return shape;
}

const std::vector<AlgorithmKernels> kKernels = {
    {"naive", {{8, 0, 1, 8, 8}}},
    {"flash", {{24, 64, 3, 4, 4}, {48, 64, 3, 4, 4}}},
    {"split_kv", {{1, 32, 1, 4, 4}, {4, 64, 4, 2, 2}, {8, 64, 4, 2, 2}}},
};

std::vector<Candidate> of_algorithm(const std::vector<Candidate> &space, const std::string &algorithm) {
    std::vector<Candidate> found;
    std::copy_if(space.begin(), space.end(), std::back_inserter(found),
                 [&](const Candidate &candidate) { return candidate.algorithm == algorithm; });
    return found;
}

TEST(Space, HasEverySplitThatCuts) {
    const std::vector<Candidate> splits = of_algorithm(space_of(some_shape(1, 600), kKernels), "split_kv");
    std::vector<int64_t> keys;
    for (const Candidate &candidate : splits) {
        EXPECT_LT(candidate.tile.rows, 8) << "twice as many rows as there are";
        if (candidate.tile.rows == 4) {
            keys.push_back(candidate.split_keys);
        }
    }
    EXPECT_EQ(keys, (std::vector<int64_t>{128, 256, 512, 1024})) << "the last one leaves the range whole";
}

TEST(Space, SharesFlashTilesWhereRowsAreFew) {
    EXPECT_EQ(of_algorithm(space_of(some_shape(40, 600), kKernels), "flash").size(), 4u);
    EXPECT_EQ(of_algorithm(space_of(some_shape(400, 600), kKernels), "flash").size(), 2u);
    EXPECT_EQ(of_algorithm(space_of(some_shape(40, 600, 1), kKernels), "flash").size(), 2u);
}

TEST(Space, LeavesNaiveOutWhereItHasNoChance) {
    EXPECT_FALSE(of_algorithm(space_of(some_shape(40, 600), kKernels), "naive").empty());
    EXPECT_TRUE(of_algorithm(space_of(some_shape(40, 60000), kKernels), "naive").empty());
}

TEST(Space, InvariantOnesKeepChunksAndSplits) {
    const std::vector<Candidate> space = space_of(some_shape(1, 600), kKernels);
    const Candidate usual{"split_kv", {4, 64, 4, 2, 2}, 512, 0};
    const std::vector<Candidate> same = invariant_space(space, usual);
    EXPECT_FALSE(same.empty());
    for (const Candidate &candidate : same) {
        EXPECT_EQ(candidate.algorithm, "split_kv");
        EXPECT_EQ(candidate.tile.keys, 64);
        EXPECT_EQ(candidate.split_keys, 512);
    }
}

// Orders that hold on any machine.
TEST(CostModel, KnowsWhatIsSlow) {
    Machine machine;
    machine.threads = 2;
    machine.flops_per_second = 5e10;
    machine.levels = {{36e3, 2e11}, {4e5, 1.5e11}, {12e6, 7e10}, {1e9, 1.4e10}};
    const auto seconds = [&](const Candidate &candidate, const Shape &shape) {
        return predicted_seconds(candidate, shape, machine, 8);
    };
    const Candidate decode{"split_kv", {4, 64, 4, 2, 2}, 512, 0}, single{"split_kv", {1, 32, 1, 4, 4}, 512, 0};
    const Candidate flash{"flash", {24, 64, 3, 4, 4}, 0, 0}, naive{"naive", {8, 0, 1, 8, 8}, 0, 1};
    const Shape step = some_shape(1, 8192), prompt = some_shape(1024, 1024);
    EXPECT_LT(seconds(decode, step), seconds(flash, step)) << "most rows of a flash tile would be empty";
    EXPECT_LT(seconds(decode, step), seconds(single, step)) << "which reads keys four times as often";
    EXPECT_LT(seconds(flash, prompt), seconds(naive, prompt));
    EXPECT_LT(seconds(flash, prompt), seconds(decode, prompt));
    EXPECT_LT(seconds(flash, some_shape(512, 512)), seconds(flash, prompt));
}

json request_for(int64_t rows, int64_t keys) {
    return {{"shapes",
             {{{"query_heads", 4}, {"kv_heads", 2}, {"query_length", rows}, {"kv_length", keys}, {"key_dim", 16}}}},
            {"seconds", 0.05}};
}

TEST(Tuner, MeasuresVerifiesAndDecides) {
    const Bench bench(1);
    for (const auto &[rows, keys] : {std::pair<int64_t, int64_t>{1, 300}, {40, 60}}) {
        int calls = 0;
        const json result = tune(bench, read_request(request_for(rows, keys)), [&] { ++calls; });
        EXPECT_GT(calls, 0);
        EXPECT_GE(result.at("noise"), 1.0);
        const json &candidates = result.at("candidates");
        EXPECT_GT(candidates.size(), 3u);
        for (const json &candidate : candidates) {
            EXPECT_EQ(candidate.at("refused"), "") << candidate;
        }
        EXPECT_EQ(candidates.at(0).at("speed"), 1.0) << "the default, beside itself";
        EXPECT_EQ(result.at("entry").at("choice").is_null(), result.at("replaces_default") == false);
        EXPECT_EQ(result.at("entry").at("class"), class_of(bench, read_request(request_for(rows, keys))));
    }
}

TEST(Tuner, EndsWhenItIsTold) {
    struct Enough {};
    const Bench bench(1);
    EXPECT_THROW(tune(bench, read_request(request_for(1, 300)), [] { throw Enough{}; }), Enough);
}

TEST(Tuner, RefusesShapesThatAreNone) {
    EXPECT_THROW(read_request(json::parse(R"({"shapes": []})")), std::invalid_argument);
    EXPECT_THROW(read_request(request_for(0, 300)), std::invalid_argument);
    json uneven = request_for(1, 300);
    uneven["shapes"][0]["query_heads"] = 3;
    EXPECT_THROW(read_request(uneven), std::invalid_argument);
}

}  // namespace
