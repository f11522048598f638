// Contexts, streams, waits and errors of executes on CUDA, of the driver in stub_cuda, whose kernels compute nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "support/cuda_execute.h"

namespace {

using namespace hattn;
using test::CudaQueue;
using test::driver;
using test::Execute;
using test::in_stream;
using test::new_context;
using test::new_stream;
using test::some_keys;

TEST_F(CudaQueue, WithoutADeviceWorkspaceOrAQueueItWaits) {
    Execute execute(some_keys(20), HATTN_ALGORITHM_FLASH);
    void *const stream = new_stream(new_context(0));
    execute.args.device_workspace = nullptr;
    start_log();
    ASSERT_TRUE(execute.run(stream).ok());
    EXPECT_EQ(log_lines().back(), "wait " + in_stream(stream));
    start_log();
    execute.args.queue = nullptr;
    ASSERT_EQ(hattn_plan_execute(execute.plan.get(), &execute.args), HATTN_OK);
    EXPECT_EQ(log_lines().back(), "wait " + in_stream(nullptr));
    ASSERT_EQ(hattn_attention(execute.context.get(), &execute.problem.desc, &execute.args), HATTN_OK);
}

TEST_F(CudaQueue, KernelsAreLoadedOnceForEachContext) {
    Execute execute(some_keys(30), HATTN_ALGORITHM_FLASH);
    void *const one = new_context(0), *const other = new_context(0);
    start_log();
    for (void *context : {one, other, one}) {
        ASSERT_TRUE(execute.run(new_stream(context)).ok());
        ASSERT_TRUE(execute.run(nullptr, context).ok());
    }
    EXPECT_EQ(log_lines("module").size(), 2u);
    EXPECT_EQ(log_lines("launch").size(), 6u);
}

TEST_F(CudaQueue, PtxIsLoadedWhereAFatBinaryIsRefused) {
    Execute execute(some_keys(35), HATTN_ALGORITHM_FLASH);
    start_log();
    ASSERT_TRUE(execute.run(new_stream(new_context(0))).ok());
    const bool fat = log_lines("module fat=1").size() == 1;
    start_log();
    setenv("HATTN_STUB_CUDA_FAIL", "fat", 1);
    ASSERT_TRUE(execute.run(new_stream(new_context(0))).ok());
    EXPECT_EQ(log_lines("module fat=1").size(), fat ? 1u : 0u);
    EXPECT_EQ(log_lines("module fat=0 ptx=1").size(), 1u);
}

TEST_F(CudaQueue, ThreadsUseStreamsOfTheirOwn) {
    constexpr int kThreads = 4, kTimes = 8;
    start_log();
    std::vector<std::string> expected;
    std::vector<std::thread> threads;
    std::array<hattn_status, kThreads> statuses = {};
    for (int t = 0; t < kThreads; ++t) {
        void *const context = new_context(t % 2), *const stream = new_stream(context);
        char where[64];
        std::snprintf(where, sizeof(where), "context=%p stream=%p", context, stream);
        expected.insert(expected.end(), kTimes, where);
        threads.emplace_back([stream, t, status = &statuses[t]] {
            Execute execute(some_keys(40), HATTN_ALGORITHM_FLASH, t % 2);
            for (int i = 0; i < kTimes && *status == HATTN_OK; ++i) {
                *status = execute.run(stream).status;
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(statuses, (std::array<hattn_status, kThreads>{}));
    std::vector<std::string> launches;
    for (const std::string &line : log_lines("launch")) {
        launches.push_back(line.substr(line.find("context=")));
    }
    std::sort(launches.begin(), launches.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(launches, expected);
    EXPECT_EQ(log_lines("module").size(), static_cast<size_t>(kThreads));
}

TEST_F(CudaQueue, ErrorsBelongToTheThreadThatMadeThem) {
    Execute execute(some_keys(50), HATTN_ALGORITHM_FLASH);
    void *const stream = new_stream(new_context(0));
    setenv("HATTN_STUB_CUDA_FAIL", "cuLaunchKernel", 1);
    const test::Outcome failed = execute.run(stream);
    unsetenv("HATTN_STUB_CUDA_FAIL");
    EXPECT_EQ(failed.status, HATTN_INTERNAL_ERROR);
    EXPECT_NE(failed.message.find("cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED"), std::string::npos) << failed.message;
    test::Outcome other;
    std::thread([&] { other = execute.run(stream); }).join();
    EXPECT_TRUE(other.ok()) << other.text();
    setenv("HATTN_STUB_CUDA_FAIL", "cuStreamSynchronize", 1);
    execute.args.device_workspace = nullptr;
    EXPECT_EQ(execute.run(stream).status, HATTN_INTERNAL_ERROR);
}

TEST_F(CudaQueue, QueuesAndTensorsAreOfThePlansGpu) {
    Execute execute(some_keys(60), HATTN_ALGORITHM_FLASH, 1);
    test::Outcome outcome = execute.run(new_stream(new_context(0)));
    EXPECT_EQ(outcome.status, HATTN_INVALID_ARGUMENT);
    EXPECT_EQ(outcome.message, "queue: its context is of GPU 0, but the plan's device_id is 1");
    EXPECT_TRUE(execute.run(new_stream(new_context(1))).ok());
    execute.args.v.device_id = 0;
    outcome = execute.run(new_stream(new_context(1)));
    EXPECT_EQ(outcome.message, "v: device_id is 0, but the plan's device_id is 1");
    execute.args.v = execute.problem.args.v;
    outcome = execute.run(new_stream(new_context(1)));
    EXPECT_NE(outcome.message.find("v: device is 0 (cpu), but that of q is 2 (cuda)"), std::string::npos);
    execute.problem.desc.device_id = 2;
    hattn_plan *plan = nullptr;
    EXPECT_EQ(hattn_plan_create(execute.context.get(), &execute.problem.desc, &plan), HATTN_NOT_SUPPORTED);
    EXPECT_STREQ(hattn_last_error(nullptr),
                 "device: is 2 (cuda), but that of device_id 2 does not work: there are 2 of them, counted from 0");
}

TEST_F(CudaQueue, TheDefaultStreamIsOfTheCurrentContextElseOfThePrimaryOne) {
    Execute execute(some_keys(70), HATTN_ALGORITHM_FLASH);
    void *const context = new_context(0);
    start_log();
    driver<int(void *)>("cuCtxPushCurrent_v2")(context);
    ASSERT_TRUE(execute.run(nullptr).ok());
    void *popped = nullptr, *primary = nullptr;
    driver<int(void **)>("cuCtxPopCurrent_v2")(&popped);
    EXPECT_EQ(popped, context) << "the caller's stack of contexts has changed";
    ASSERT_TRUE(execute.run(nullptr).ok());
    driver<int(void **, int)>("cuDevicePrimaryCtxRetain")(&primary, 0);
    const std::vector<std::string> launches = log_lines("launch");
    ASSERT_EQ(launches.size(), 2u);
    for (const auto &[line, of] : {std::pair(launches[0], context), std::pair(launches[1], primary)}) {
        char text[32];
        std::snprintf(text, sizeof(text), "context=%p ", of);
        EXPECT_NE(line.find(text), std::string::npos) << line;
    }
}

}  // namespace
