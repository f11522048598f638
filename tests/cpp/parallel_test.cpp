// Tasks over workers.
#include "runtime/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

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

// A child has none of the threads that its parent's pool had, and some of these may have been in the middle of it.
TEST(Parallel, ChildrenOfForkDoWithoutThePool) {
    const auto sum = [] {
        std::atomic<int64_t> total{0};
        hattn::for_each_task(Executor{.threads = 4}, 100, false, [&](int64_t i, int32_t) { total += i; });
        return total.load();
    };
    ASSERT_EQ(sum(), 4950);
    std::atomic<bool> done = false;
    std::thread busy([&] {
        while (!done) {
            sum();
        }
    });
    for (int i = 0; i < 100; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            _exit(sum() == 4950 ? 0 : 1);
        }
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0) << "the child of fork " << i;
        if (status != 0) {
            break;
        }
    }
    done = true;
    busy.join();
}

}  // namespace
