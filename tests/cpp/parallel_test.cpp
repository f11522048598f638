// Tasks over workers.
#include "runtime/parallel.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "runtime/status.h"

namespace {

using hattn::Executor;

TEST(Parallel, EveryTaskOnceAndNextOnesBehindIt) {
    for (const int32_t threads : {1, 2, 3, 7}) {
        for (const int64_t count : {0, 1, 2, 5, 6, 7, 100}) {
            std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
            std::atomic<int> misplaced{0};
            hattn::for_each_task_in_order(Executor{.threads = threads}, count,
                                          [&](int64_t i, int64_t next, int32_t worker) {
                                              ++calls[static_cast<size_t>(i)];
                                              misplaced += next <= i || next > count || worker >= threads;
                                          });
            EXPECT_EQ(misplaced, 0) << count << " tasks, " << threads << " threads";
            for (int64_t i = 0; i < count; ++i) {
                EXPECT_EQ(calls[static_cast<size_t>(i)], 1) << i << " of " << count << ", " << threads << " threads";
            }
        }
    }
}

TEST(Parallel, OneWorkerKnowsItsNextTask) {
    std::vector<int64_t> said = {0};
    hattn::for_each_task_in_order(Executor{.threads = 1}, 9, [&](int64_t i, int64_t next, int32_t) {
        EXPECT_EQ(i, said.back());
        said.push_back(next);
    });
    EXPECT_EQ(said.back(), 9);
    EXPECT_EQ(said.size(), 10u);
}

// A caller's parallel_for may leave all workers but one out, and fails if it leaves out that one too.
TEST(Parallel, OneWorkerOfTheCallersHasToCome) {
    int32_t most = 0;
    const Executor executor{.parallel_for =
                                [](void *user, int32_t count, void (*task)(void *, int32_t), void *closure) {
                                    for (int32_t i = 0; i < std::min(count, *static_cast<int32_t *>(user)); ++i) {
                                        task(closure, i);
                                    }
                                },
                            .user = &most,
                            .threads = 3};
    int64_t done = 0;
    const auto count = [&] { hattn::for_each_task(executor, 10, false, [&](int64_t, int32_t) { ++done; }); };
    EXPECT_THROW(count(), hattn::StatusError);
    EXPECT_EQ(done, 0);
    most = 1;
    count();
    EXPECT_EQ(done, 10);
}

// Threads that wait for their own loop take no part in another's, which may be long.
TEST(Parallel, CallersComputeWhatIsTheirs) {
    constexpr int kCallers = 4;
    std::vector<std::thread> callers;
    std::array<std::atomic<std::thread::id>, kCallers> ids;
    std::atomic<int> ready = 0, foreign = 0;
    for (int self = 0; self < kCallers; ++self) {
        callers.emplace_back([&, self] {
            ids[static_cast<size_t>(self)] = std::this_thread::get_id();
            ++ready;
            while (ready < kCallers) {
                std::this_thread::yield();
            }
            for (int round = 0; round < 200; ++round) {
                hattn::for_each_task(Executor{.threads = 3}, 6, false, [&](int64_t, int32_t) {
                    for (int other = 0; other < kCallers; ++other) {
                        foreign += other != self && ids[static_cast<size_t>(other)] == std::this_thread::get_id();
                    }
                    usleep(10);
                });
            }
        });
    }
    for (std::thread &caller : callers) {
        caller.join();
    }
    EXPECT_EQ(foreign, 0);
}

}  // namespace
