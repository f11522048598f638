// The tuner's parts, and the whole of it on a small problem.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "cost_model.h"
#include "device_cost.h"
#include "space.h"
#include "statistics.h"
#include "tuner.h"
#include "verify.h"

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
    // Four times as many values, half of the error, and 159 degrees of freedom of Student's t in place of 39.
    std::vector<double> more;
    for (int copy = 0; copy < 4; ++copy) {
        more.insert(more.end(), calm.begin(), calm.end());
    }
    EXPECT_NEAR(uncertainty(more), uncertainty(calm) / 2.0 * 1.9749 / 2.0227, 1e-4 * uncertainty(calm));
}

// Student's t over the normal distribution's, 97.5%: a deviation of 1 has an uncertainty of 2 without that.
TEST(Statistics, FewValuesAreWorthLess) {
    const double of_one = 2.0 * 1.4826 * 1.2533;
    EXPECT_NEAR(uncertainty({1.0, 2.0, 3.0}), 4.303 / 1.960 * of_one / std::sqrt(3.0), 0.2);
    EXPECT_NEAR(uncertainty({1.0, 1.0, 2.0, 3.0, 3.0}), 2.776 / 1.960 * of_one / std::sqrt(5.0), 0.05);
    EXPECT_EQ(uncertainty({1.0}), 0.0);
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

const Tile kDevicePrefill{16, 32, 1, 1, 1, 64, 8, 2}, kDeviceDecode{8, 32, 1, 1, 1, 64, 8, 1};

TEST(Space, OfDevicesKeepsWhetherTilesAreOfWarpgroups) {
    for (const bool warpgroups : {false, true}) {
        Candidate candidate{"flash", kDevicePrefill};
        candidate.tile.warpgroups = warpgroups;
        EXPECT_EQ(json(candidate).get<Candidate>().tile, candidate.tile);
        EXPECT_EQ(json(candidate).at("tile").at("warpgroups"), warpgroups);
    }
}

TEST(Space, OfDevicesSplitsTilesThatAreHardlyFull) {
    Shape shape = some_shape(1, 600);
    shape.device = HATTN_OPENCL;
    const std::vector<Candidate> space = space_of(shape, {{"flash", {kDevicePrefill}}, {"split_kv", {kDeviceDecode}}});
    EXPECT_EQ(of_algorithm(space, "flash").size(), 1u) << "heads share no tiles there";
    EXPECT_EQ(of_algorithm(space, "split_kv").size(), 4u);
    for (const Candidate &candidate : space) {
        EXPECT_EQ(json(candidate).get<Candidate>().tile, candidate.tile);
        EXPECT_EQ(json(candidate).at("tile").size(), 6u);
    }
}

TEST(Shape, NamesItsDevice) {
    json object = {{"query_heads", 2}, {"device", "cuda:1"}};
    const Shape shape = read_shape(object);
    EXPECT_EQ(shape.device, HATTN_CUDA);
    EXPECT_EQ(shape.device_id, 1);
    EXPECT_EQ(shape_json(shape).at("device"), "cuda:1");
    EXPECT_EQ(desc_of(shape).device_id, 1);
    for (const char *unknown : {"tpu", "cuda:", "cuda:x", "cuda:-1", ""}) {
        object["device"] = unknown;
        EXPECT_THROW(read_shape(object), std::invalid_argument) << unknown;
    }
}

// What rows do not see makes no choices and takes no time.
TEST(Space, OfAWindowIsOfTheKeysThatAreSeen) {
    Shape windowed = some_shape(1, 32768), few = some_shape(1, 64);
    windowed.window_left = 63;
    EXPECT_EQ(windowed.seen_keys(), 64);
    const std::vector<AlgorithmKernels> kernels = {
        {"naive", {{8, 0, 1, 8, 8}}}, {"flash", {{24, 64, 3, 4, 4}}}, {"split_kv", {{1, 64, 1, 4, 4}}}};
    const std::vector<Candidate> space = space_of(windowed, kernels), of_few = space_of(few, kernels);
    ASSERT_EQ(space.size(), of_few.size());
    for (size_t i = 0; i < space.size(); ++i) {
        EXPECT_EQ(json(space[i]), json(of_few[i]));
    }
    Machine machine;
    machine.flops_per_second = 5e10;
    machine.levels = {{36e3, 2e11}, {1e9, 1.4e10}};
    for (const Candidate &candidate : space) {
        const double seconds = predicted_seconds(candidate, windowed, machine, 8);
        EXPECT_LT(seconds, 1.5 * predicted_seconds(candidate, few, machine, 8));
        EXPECT_LT(seconds, 0.1 * predicted_seconds(candidate, some_shape(1, 32768), machine, 8));
    }
}

// Orders that hold on any device of some size.
TEST(DeviceCost, KnowsWhatIsSlow) {
    const auto seconds = [&](const Candidate &candidate, const Shape &shape) {
        return predicted_device_seconds(candidate, shape, 100.0);
    };
    const Candidate decode{"split_kv", kDeviceDecode, 512, 0}, flash{"flash", kDevicePrefill, 0, 0};
    const Shape step = some_shape(1, 8192), prompt = some_shape(1024, 1024);
    EXPECT_LT(seconds(decode, step), seconds(flash, step)) << "few work groups that read all keys";
    EXPECT_LT(seconds(flash, prompt), seconds(decode, prompt));
    Candidate padded = flash;
    padded.tile.head = 128;
    EXPECT_LT(seconds(flash, prompt), seconds(padded, prompt));
    Candidate narrow = flash;
    narrow.tile.thread_rows = 1;
    EXPECT_LT(seconds(flash, prompt), seconds(narrow, prompt)) << "which reads an operand per multiply-add";
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
    Shape stored = step;
    stored.dtype = HATTN_INT8;
    machine.levels = {{1e9, 1e9}};
    EXPECT_LT(seconds(decode, stored), 0.5 * seconds(decode, step)) << "there is less to read";
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

TEST(Tuner, MeasuresEveryTypeThatKeysAreStoredIn) {
    const Bench bench(1);
    json request = request_for(1, 300);
    request["seconds"] = 0.01;
    const double floats = tune(bench, read_request(request), [] {}).at("work").at(0).at("bytes");
    for (const auto &[dtype, share] : {std::pair<const char *, double>{"float16", 0.5},
                                       {"bfloat16", 0.5},
                                       {"int8", 1.125 / 4},
                                       {"int4", 0.625 / 4}}) {
        request["shapes"][0]["dtype"] = dtype;
        const json result = tune(bench, read_request(request), [] {});
        EXPECT_EQ(result.at("entry").at("class").at("dtype"), dtype);
        EXPECT_EQ(result.at("shapes").at(0).at("dtype"), dtype);
        EXPECT_DOUBLE_EQ(result.at("work").at(0).at("bytes"), share * floats) << dtype;
        EXPECT_GT(result.at("candidates").size(), 3u) << dtype;
        for (const json &candidate : result.at("candidates")) {
            EXPECT_EQ(candidate.at("refused"), "") << dtype << ": " << candidate;
        }
    }
}

// What is off by more than the rounding of its type is found, and what is off by less is not.
TEST(Verification, KnowsTheRoundingOfTypes) {
    Shape shape = some_shape(3, 40);
    for (const auto &[dtype, roundoff] : {std::pair{HATTN_FLOAT16, std::ldexp(1.0f, -11)},
                                          {HATTN_BFLOAT16, std::ldexp(1.0f, -8)},
                                          {HATTN_INT8, 0.0f}}) {
        shape.dtype = dtype;
        const auto problem = make_problem(shape);
        const hattn::bench::Verification verification(problem->twin, 1e9, {problem->args.out.dtype});
        const hattn::cases::Expected expected = problem->evaluate();
        const auto check = [&](float factor) {
            for (size_t i = 0; i < expected.out.size(); ++i) {
                problem->twin.out.floats()[i] = factor * static_cast<float>(expected.out[i]);
            }
            for (size_t i = 0; i < expected.lse.size(); ++i) {
                problem->twin.lse.floats()[i] = static_cast<float>(expected.lse[i]);
            }
            return verification.check(problem->twin);
        };
        EXPECT_EQ(check(1.0f + 0.9f * roundoff), "");
        EXPECT_NE(check(1.0f + 4.0f * roundoff + 1e-3f), "");
    }
}

TEST(Tuner, EndsWhenItIsTold) {
    struct Enough {};
    const Bench bench(1);
    EXPECT_THROW(tune(bench, read_request(request_for(1, 300)), [] { throw Enough{}; }), Enough);
}

TEST(Tuner, EndsBeforeProblemsAreMade) {
    struct Enough {};
    const Bench bench(1);
    json request = request_for(1, 300);
    request["shapes"][0]["device"] = "opencl:99";  // which fails when there is none
    EXPECT_THROW(tune(bench, read_request(request), [] { throw Enough{}; }), Enough);
}

TEST(Tuner, RefusesShapesThatAreNone) {
    EXPECT_THROW(read_request(json::object({{"shapes", json::array()}})), std::invalid_argument);
    EXPECT_THROW(read_request(request_for(0, 300)), std::invalid_argument);
    json uneven = request_for(1, 300);
    uneven["shapes"][0]["query_heads"] = 3;
    EXPECT_THROW(read_request(uneven), std::invalid_argument);
    json unknown = request_for(1, 300);
    unknown["shapes"][0]["dtype"] = "float8";
    EXPECT_THROW(read_request(unknown), std::invalid_argument);
}

}  // namespace
