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

// The same in the order of indices, with tasks that know which one their worker is likely to take next: call(index,
// next, worker), where next may be `count`. Workers take a task before they are done with the one before it, but not
// the last ones, lest these wait for a worker while another has nothing to do.
template<typename Task>
void for_each_task_in_order(const Executor &executor, int64_t count, const Task &task) {
    struct Work {
        const Task &task;
        int64_t count, workers;
        std::atomic<int64_t> next{0};
    } work{task, count, std::min<int64_t>(count, executor.threads)};
    const auto take_tasks = [](void *closure, int32_t worker) {
        Work &shared = *static_cast<Work *>(closure);
        const auto take = [&] { return shared.next.fetch_add(1, std::memory_order_relaxed); };
        const int64_t shared_out = shared.count - 2 * shared.workers;
        for (int64_t i = take(); i < shared.count;) {
            const bool ahead = i < shared_out;
            int64_t next = ahead ? take() : std::min(i + shared.workers, shared.count);
            shared.task(i, std::min(next, shared.count), worker);
            i = ahead ? next : take();
        }
    };
    executor.run(static_cast<int32_t>(work.workers), take_tasks, &work);
}

}  // namespace hattn
