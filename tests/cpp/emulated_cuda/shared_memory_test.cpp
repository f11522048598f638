// GPUs of compute capability 8.6, 8.9 and 12.0 have less shared memory for a block of threads than some kernels take:
// plans take what fits, and results are right, on an emulated one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <tuple>

#include "support/devices.h"
#include "support/json_text.h"
#include "support/tuning_file.h"
#include "support/typed_run.h"

namespace {

using namespace hattn;
using nlohmann::json;

constexpr char kLimitVariable[] = "HATTN_STUB_CUDA_SHARED";
constexpr int64_t kLimit = 99 * 1024;

constexpr cases::StoredTypes kFloat32 = {"float32", HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32};
constexpr cases::StoredTypes kFloat16 = {"float16", HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16};
constexpr cases::StoredTypes kBFloat16 = {"bfloat16", HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16};

// Null: the build has no kernels for it.
const json *device_named(const json &info, const char *name) {
    const json &devices = info.at("devices");
    const auto found =
        std::find_if(devices.begin(), devices.end(), [&](const json &row) { return row.at("name") == name; });
    return found == devices.end() ? nullptr : &*found;
}

int64_t shared_bytes_of(const json &device, const std::string &kernel) {
    for (const json &row : device.at("kernels")) {
        if (row.at("name") == kernel) {
            return row.at("shared_bytes");
        }
    }
    ADD_FAILURE() << "info has no kernel " << kernel;
    return -1;
}

cases::Case some_case(int64_t rows, int64_t head) {
    cases::Case c;
    c.name = "shared_memory_" + std::to_string(head);
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = rows;
    c.kv_length = 100;
    c.key_dim = c.value_dim = head;
    c.causal = true;
    return c;
}

// Without hooks, with one that has no neutral operand, with one that has, with all.
constexpr int kHookSets = 4;
cases::Case with_hooks(cases::Case c, int set) {
    c.softcap = set % 2 == 1 ? 1.5f : 0.0f;
    c.mask = set >= 2 ? cases::varying("qk") : cases::Operand{};
    c.bias = set == 3 ? cases::varying("hqk") : cases::Operand{};
    c.alibi = set == 3;
    return c;
}

class SharedMemory : public testing::Test {
protected:
    static void SetUpTestSuite() {
        setenv(kLimitVariable, std::to_string(kLimit).c_str(), 1);
    }
    void SetUp() override {
        info_ = test::info_of(test::device_context());
        if (!device_named(info_, "cuda")) {
            GTEST_SKIP() << "the build has no kernels for cuda";
        }
        ASSERT_EQ(test::device_unusable("cuda"), "");
    }
    void TearDown() override {
        unsetenv("HATTN_STUB_CUDA_LOG");
        std::remove(log_.c_str());
    }
    const json &cuda() const {
        return *device_named(info_, "cuda");
    }

    // What launches have asked for.
    std::vector<int64_t> launched_bytes() const {
        std::vector<int64_t> bytes;
        std::ifstream file(log_);
        for (std::string line; std::getline(file, line);) {
            if (line.starts_with("launch ")) {
                bytes.push_back(std::stoll(line.substr(line.find("shared=") + 7)));
            }
        }
        return bytes;
    }

    json info_;
    const std::string log_ = testing::TempDir() + "hattn_shared_memory_" + std::to_string(getpid()) + ".log";
};

TEST_F(SharedMemory, InfoHasTheLimit) {
    EXPECT_EQ(cuda().at("found").at(0).at("shared_bytes"), kLimit);
}

TEST_F(SharedMemory, PlansTakeKernelsThatFit) {
    int plans = 0;
    for (const int64_t head : {32, 64, 80, 128, 192, 256}) {
        for (const cases::StoredTypes &types : {kFloat32, kFloat16, kBFloat16}) {
            for (int hooks = 0; hooks < kHookSets; ++hooks) {
                for (const hattn_algorithm algorithm : test::kAlgorithms) {
                    cases::TypedProblem problem(with_hooks(some_case(hooks == 0 ? 1 : 20, head), hooks), types);
                    problem.desc.device = HATTN_CUDA;
                    problem.desc.algorithm = algorithm;
                    hattn_plan *made = nullptr;
                    const hattn_status status = hattn_plan_create(test::device_context(), &problem.desc, &made);
                    const test::PlanPtr plan(made);
                    if (status == HATTN_OK) {
                        const std::string kernel = test::explanation_of(plan.get()).at("kernel");
                        EXPECT_LE(shared_bytes_of(cuda(), kernel), kLimit) << kernel;
                        ++plans;
                        continue;
                    }
                    // Automatically there is always one.
                    EXPECT_NE(algorithm, HATTN_ALGORITHM_AUTO);
                    EXPECT_EQ(status, HATTN_NOT_SUPPORTED);
                    EXPECT_NE(std::string(hattn_last_error(nullptr)).find("device: has 101376 bytes of shared memory"),
                              std::string::npos)
                        << hattn_last_error(nullptr);
                }
            }
        }
    }
    EXPECT_GT(plans, 6 * 3 * kHookSets * 4);
}

// Of heads that have too large kernels on tensor cores, and of all hooks. Launches take what the table says.
TEST_F(SharedMemory, ResultsAreRight) {
    for (const auto &[head, types, hooks] : {std::tuple(256, kBFloat16, 0), std::tuple(160, kFloat16, 1),
                                             std::tuple(128, kFloat32, 2), std::tuple(256, kFloat32, 3)}) {
        const cases::Case c = with_hooks(some_case(40, head), hooks);
        SCOPED_TRACE(cases::describe(c));
        cases::TypedProblem problem(c, types);
        problem.desc.device = HATTN_CUDA;
        std::remove(log_.c_str());
        setenv("HATTN_STUB_CUDA_LOG", log_.c_str(), 1);
        test::expect_oracle(test::device_context(), problem, HATTN_FLOAT32);
        const test::PlanPtr plan = test::make_plan(test::device_context(), problem.desc);
        const std::string kernel = test::explanation_of(plan.get()).at("kernel");
        const std::vector<int64_t> launched = launched_bytes();
        ASSERT_FALSE(launched.empty());
        EXPECT_EQ(launched.front(), shared_bytes_of(cuda(), kernel)) << kernel;
    }
}

// As of another GPU whose driver calls itself the same.
TEST_F(SharedMemory, TunedTilesThatDoNotFitAreNotTaken) {
    cases::TypedProblem problem(some_case(40, 128), kFloat16);
    problem.desc.device = HATTN_CUDA;
    const auto explain = [&](const std::string &database) {
        const test::ContextPtr context = test::context_with_tuning(database);
        return test::explanation_of(test::make_plan(context.get(), problem.desc).get());
    };
    const json usual = explain("rule");
    int tiles = 0;
    for (const json &kernel : cuda().at("kernels")) {
        if (kernel.at("algorithm") == "flash" && kernel.at("shared_bytes") > kLimit) {
            const json choice = {{"algorithm", "flash"}, {"tile", kernel.at("tile")}, {"split_keys", 0}, {"heads", 0}};
            const test::TuningFile file(test::tuning_document({test::tuning_entry(usual.at("class"), choice)}));
            const json plan = explain(file.path());
            EXPECT_EQ(plan.at("decided_by"), "machine");
            EXPECT_LE(shared_bytes_of(cuda(), plan.at("kernel")), kLimit) << plan;
            ++tiles;
        }
    }
    EXPECT_GT(tiles, 0) << "every kernel fits";
}

TEST_F(SharedMemory, ForcedKernelsThatDoNotFitAreRefused) {
    int refused = 0;
    for (const json &kernel : cuda().at("kernels")) {
        if (kernel.at("shared_bytes") > kLimit && kernel.at("matrix_type") == "float16" && kernel.at("hooks").empty() &&
            kernel.at("capability").is_null()) {
            const std::string name = kernel.at("name");
            const test::ContextPtr context = test::make_context(1, "kernel=" + name);
            cases::TypedProblem problem(some_case(40, 64), kFloat16);
            problem.desc.device = HATTN_CUDA;
            hattn_plan *plan = nullptr;
            EXPECT_EQ(hattn_plan_create(context.get(), &problem.desc, &plan), HATTN_NOT_SUPPORTED);
            EXPECT_EQ(std::string(hattn_last_error(context.get())),
                      "HATTN_FORCE: kernel " + name + " takes " + kernel.at("shared_bytes").dump() +
                          " bytes of shared memory, but the device has 101376 for a work group");
            ++refused;
        }
    }
    EXPECT_GT(refused, 0) << "every kernel fits";
}

// In a process of its own, since the limit is asked for once.
TEST(SharedMemoryDeathTest, WhatFitsNowhereIsNotSupported) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto plan = [](const char *limit, hattn_algorithm algorithm) {
        setenv(kLimitVariable, limit, 1);
        cases::TypedProblem problem(some_case(40, 256), kBFloat16);
        problem.desc.device = HATTN_CUDA;
        problem.desc.algorithm = algorithm;
        hattn_plan *made = nullptr;
        const hattn_status status = hattn_plan_create(test::device_context(), &problem.desc, &made);
        const test::PlanPtr owner(made);
        const std::string text = status == HATTN_OK ? test::explanation_of(made).at("algorithm").get<std::string>()
                                                    : hattn_last_error(nullptr);
        std::fprintf(stderr, "%s: %s\n", hattn_status_name(status), text.c_str());
        std::exit(0);
    };
    const std::string or_no_kernels = "|this build has kernels for cpu";
    const auto not_supported = [&](const std::string &limit) {
        return "HATTN_NOT_SUPPORTED: device: has " + limit +
               " bytes of shared memory for a work group, but flash_cuda_.*, which takes the least, takes [0-9]+" +
               or_no_kernels;
    };
    const auto exits = testing::ExitedWithCode(0);
    EXPECT_EXIT(plan("30000", HATTN_ALGORITHM_FLASH), exits, not_supported("30000"));
    EXPECT_EXIT(plan("30000", HATTN_ALGORITHM_AUTO), exits, "HATTN_OK: split_kv" + or_no_kernels);
    EXPECT_EXIT(plan("18000", HATTN_ALGORITHM_AUTO), exits, "HATTN_OK: unfused" + or_no_kernels);
    EXPECT_EXIT(plan("16000", HATTN_ALGORITHM_AUTO), exits, not_supported("16000"));
}

TEST(SharedMemoryTable, KernelsOfEveryDeviceSayWhatTheyTake) {
    const json info = test::info_of(test::device_context());
    for (const json &device : info.at("devices")) {
        for (const json &kernel : device.at("kernels")) {
            const bool attends = kernel.at("algorithm") == "flash" || kernel.at("algorithm") == "split_kv";
            EXPECT_GE(kernel.at("shared_bytes"), attends ? 1 : 0) << kernel;
        }
    }
}

}  // namespace
