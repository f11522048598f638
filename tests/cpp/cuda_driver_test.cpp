// What the library asks a CUDA driver for, of the one in stub_cuda, whose kernels compute nothing: launches, their
// shared memory and errors.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "support/devices.h"
#include "support/run.h"

namespace {

using namespace hattn;

class CudaDriver : public testing::Test {
protected:
    void SetUp() override {
        if (!test::has_cuda_kernels()) {
            GTEST_SKIP() << "the build has no kernels for cuda";
        }
        ASSERT_EQ(test::device_unusable("cuda"), "");
        setenv("HATTN_STUB_CUDA_LOG", log_.c_str(), 1);
    }
    void TearDown() override {
        unsetenv("HATTN_STUB_CUDA_LOG");
        unsetenv("HATTN_STUB_CUDA_FAIL");
        std::remove(log_.c_str());
    }

    test::Outcome run(const cases::Case &c, hattn_algorithm algorithm) {
        cases::Problem problem(c);
        problem.desc.device = HATTN_CUDA;
        return test::run(test::device_context(), problem, algorithm);
    }

    std::vector<std::string> log_lines(const std::string &start) const {
        std::vector<std::string> lines;
        std::ifstream file(log_);
        for (std::string line; std::getline(file, line);) {
            if (line.rfind(start, 0) == 0) {
                lines.push_back(line);
            }
        }
        return lines;
    }

    const std::string log_ = testing::TempDir() + "hattn_stub_cuda_" + std::to_string(getpid()) + ".log";
};

cases::Case large_heads() {
    cases::Case c;
    c.name = "cuda_driver";
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = 100;
    c.kv_length = 700;
    c.key_dim = c.value_dim = 128;
    return c;
}

TEST_F(CudaDriver, LaunchesTakeTheSharedMemoryTheyNeedAndAllRegisters) {
    test::Outcome outcome = run(large_heads(), HATTN_ALGORITHM_FLASH);
    ASSERT_TRUE(outcome.ok()) << outcome.text();
    const std::vector<std::string> modules = log_lines("module");
    ASSERT_EQ(modules.size(), 1u);
    EXPECT_TRUE(modules[0].starts_with("module fat=0 ptx=1 ") || modules[0].starts_with("module fat=1 ")) << modules[0];
    const std::vector<std::string> launches = log_lines("launch");
    ASSERT_EQ(launches.size(), 1u);
    EXPECT_TRUE(launches[0].starts_with("launch blocks=8 threads=128 shared=")) << launches[0];
    const int shared = std::stoi(launches[0].substr(launches[0].find("shared=") + 7));
    EXPECT_GT(shared, 48 * 1024);
    EXPECT_EQ(log_lines("attribute"), std::vector<std::string>{"attribute 8=" + std::to_string(shared)});
}

TEST_F(CudaDriver, SplitKeysAreOneLaunchAndTheirMergesAnother) {
    cases::Case c = large_heads();
    c.query_length = 1;
    test::Outcome outcome = run(c, HATTN_ALGORITHM_SPLIT_KV);
    ASSERT_TRUE(outcome.ok()) << outcome.text();
    const std::vector<std::string> launches = log_lines("launch");
    ASSERT_EQ(launches.size(), 2u);
    EXPECT_EQ(launches[0].find("launch blocks=8 threads=256 "), 0u) << launches[0];
    EXPECT_EQ(launches[1].find("launch blocks=4 threads=1024 "), 0u) << launches[1];
}

TEST_F(CudaDriver, ErrorsAreStatuses) {
    setenv("HATTN_STUB_CUDA_FAIL", "cuLaunchKernel", 1);
    test::Outcome launch = run(large_heads(), HATTN_ALGORITHM_FLASH);
    EXPECT_EQ(launch.status, HATTN_INTERNAL_ERROR);
    EXPECT_NE(launch.message.find("cuLaunchKernel"), std::string::npos) << launch.message;
    setenv("HATTN_STUB_CUDA_FAIL", "cuMemAlloc", 1);
    // Halide gives out again what was freed, so this asks for more than there was before.
    cases::Case larger = large_heads();
    larger.batch = 3;
    test::Outcome memory = run(larger, HATTN_ALGORITHM_FLASH);
    EXPECT_EQ(memory.status, HATTN_OUT_OF_MEMORY) << memory.message;
    unsetenv("HATTN_STUB_CUDA_FAIL");
    EXPECT_TRUE(run(large_heads(), HATTN_ALGORITHM_FLASH).ok());
}

// Others than the first call find out about the GPU.
TEST(CudaDriverDeathTest, MemoryThatRunsOutOnceMayBeThereLater) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto ask_twice = [] {
        hattn_queue queue = HATTN_QUEUE_INIT;
        setenv("HATTN_STUB_CUDA_FAIL", "cuMemAlloc", 1);
        const hattn_status without = hattn_device_queue(HATTN_CUDA, 0, &queue);
        unsetenv("HATTN_STUB_CUDA_FAIL");
        const hattn_status later = hattn_device_queue(HATTN_CUDA, 0, &queue);
        std::fprintf(stderr, "%s, then %s: %s\n", hattn_status_name(without), hattn_status_name(later),
                     hattn_last_error(nullptr));
        std::exit(0);
    };
    EXPECT_EXIT(ask_twice(), testing::ExitedWithCode(0),
                "HATTN_OUT_OF_MEMORY, then HATTN_OK|this build has kernels for");
}

// Each in a process of its own, since what is known of a driver is kept.
TEST(CudaDriverDeathTest, DriversAndGpusThatAreTooOldAreNotSupported) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto say_why_not = [](const char *name, const char *value) {
        setenv(name, value, 1);
        std::fprintf(stderr, "%s\n", test::device_unusable("cuda").c_str());
        std::exit(0);
    };
    const std::string or_no_kernels = "|the build has no kernels";
    for (const auto &[name, value, words] :
         {std::array{"HATTN_STUB_CUDA_VERSION", "10020", "the CUDA driver is too old: it is for CUDA 10.2"},
          std::array{"HATTN_STUB_CUDA_CAPABILITY", "75",
                     "GPU 0 .stub. has compute capability 7.5, but kernels need 8.0"},
          std::array{"HATTN_STUB_CUDA_DEVICES", "0", "there is no GPU"}}) {
        EXPECT_EXIT(say_why_not(name, value), testing::ExitedWithCode(0), words + or_no_kernels);
    }
}

}  // namespace
