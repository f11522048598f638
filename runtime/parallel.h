// Independent tasks over the workers of a context.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "context.h"

namespace hattn {

// Calls task(index, worker) for every index in [0, count), each once, in any order. A task may not throw. With
// `serial` everything happens on the calling thread: waking others takes longer than a few small tasks.
template<typename Task>
void for_each_task(const Executor &executor, int64_t count, bool serial, const Task &task) {
    struct Work {
        const Task &task;
        int64_t count;
        std::atomic<int64_t> next{0};
    } work{task, count};
    const auto take_tasks = [](void *closure, int32_t worker) {
        Work &shared = *static_cast<Work *>(closure);
        for (int64_t i; (i = shared.next.fetch_add(1, std::memory_order_relaxed)) < shared.count;) {
            shared.task(i, worker);
        }
    };
    const int64_t workers = serial ? std::min<int64_t>(count, 1) : std::min<int64_t>(count, executor.threads);
    executor.run(static_cast<int32_t>(workers), take_tasks, &work);
}

}  // namespace hattn
