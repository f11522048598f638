// Kernels with machine code in fat binaries, which this program brings for the merge alone: what is loaded of them on
// which GPU, and what where a driver takes none. On the driver of stub_cuda, whose kernels compute nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "support/devices.h"
#include "support/json_text.h"
#include "support/run.h"

namespace {

using namespace hattn;

std::string log_path() {
    static const std::string path = testing::TempDir() + "hattn_fat_binary_" + std::to_string(getpid()) + ".log";
    return path;
}

// Runs what splits keys and merges, twice; says in order of loading what modules are made of.
std::vector<std::string> modules_loaded() {
    setenv("HATTN_STUB_CUDA_LOG", log_path().c_str(), 1);
    cases::Case c;
    c.name = "fat_binary";
    c.kv_length = 700;
    for (int i = 0; i < 2; ++i) {
        cases::Problem problem(c);
        problem.desc.device = HATTN_CUDA;
        const test::Outcome outcome = test::run(test::device_context(), problem, HATTN_ALGORITHM_SPLIT_KV);
        EXPECT_TRUE(outcome.ok()) << outcome.text();
    }
    std::vector<std::string> modules;
    size_t launches = 0;
    std::ifstream file(log_path());
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("module ")) {
            modules.push_back(line.substr(7, line.find(" context") - 7));
        }
        launches += line.starts_with("launch ");
    }
    std::remove(log_path().c_str());
    EXPECT_EQ(launches, 4u);
    return modules;
}

// In a process of its own, since what is known of a driver and what is loaded is kept.
void print_modules(const char *variable, const char *value) {
    setenv(variable, value, 1);
    std::string text;
    for (const std::string &module : modules_loaded()) {
        text += (text.empty() ? "" : ", ") + module;
    }
    std::fprintf(stderr, "loaded: %s.\n", text.c_str());
    std::exit(testing::Test::HasFailure());
}

TEST(FatBinary, InfoNamesTheKernelsThatHaveOne) {
    const nlohmann::json info = test::info_of(test::device_context());
    size_t merges = 0;
    for (const nlohmann::json &device : info.at("devices")) {
        for (const nlohmann::json &kernel : device.at("kernels")) {
            const bool is_merge = device.at("name") == "cuda" && kernel.at("algorithm") == "merge";
            EXPECT_EQ(kernel.at("fat_binary"), is_merge) << kernel.at("name");
            merges += is_merge;
        }
    }
    EXPECT_GT(merges, 0u);
}

TEST(FatBinaryDeathTest, EachGpuGetsItsMachineCodeOrThePtx) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    for (const auto &[capability, image] :
         {std::pair{"80", "sm_80"}, std::pair{"86", "sm_80"}, std::pair{"89", "sm_80"}, std::pair{"90", "sm_90"},
          std::pair{"100", "sm_100"}, std::pair{"110", "ptx_90"}, std::pair{"120", "sm_120"}}) {
        EXPECT_EXIT(print_modules("HATTN_STUB_CUDA_CAPABILITY", capability), testing::ExitedWithCode(0),
                    std::string("loaded: fat=0 ptx=1, fat=1 image=") + image + "\\.");
    }
}

TEST(FatBinaryDeathTest, WhereADriverTakesNoneThePtxAloneIsLoaded) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(print_modules("HATTN_STUB_CUDA_FAIL", "fat"), testing::ExitedWithCode(0),
                "loaded: fat=0 ptx=1, fat=1 image=sm_80, fat=0 ptx=1\\.");
}

}  // namespace
