#include "worker_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <new>

#include "context.h"
#include "cpu_features.h"
#include "float_environment.h"

namespace hattn {

namespace {

using Clock = std::chrono::steady_clock;

// Of a loop over workers, on the stack of whoever called.
struct Job {
    void (*work)(void *closure, int32_t worker);
    void *closure;
    int32_t workers;
    std::atomic<int32_t> next{0};     // worker that nobody is yet
    std::atomic<int32_t> helpers{0};  // threads of the pool that are in it; more come only while it is listed
    Job *following = nullptr;

    bool has_more() const {
        return next.load(std::memory_order_relaxed) < workers;
    }
    // Is one worker after the other until all are taken.
    void help() {
        for (int32_t worker; (worker = next.fetch_add(1, std::memory_order_relaxed)) < workers;) {
            work(closure, worker);
        }
    }
};

// Something that happens again and again. Waiting for it first looks whether it has, making room for other threads: to
// be woken takes 70 us in a virtual machine, longer than many a call, see decision 0118.
class Event {
public:
    uint32_t now() const {
        return count_.load(std::memory_order_acquire);
    }
    void happens(int32_t wakes) {
        count_.fetch_add(1, std::memory_order_release);
        for (int32_t i = 0; i < wakes; ++i) {
            count_.notify_one();
        }
    }
    void happens_for_all() {
        count_.fetch_add(1, std::memory_order_release);
        count_.notify_all();
    }
    void wait_since(uint32_t before) const {
        constexpr std::chrono::microseconds kAwake{200};
        constexpr int kLooks = 8;  // until the clock is asked again
        const Clock::time_point asleep = Clock::now() + kAwake;
        do {
            for (int i = 0; i < kLooks; ++i) {
                if (now() != before) {
                    return;
                }
                sched_yield();
            }
        } while (Clock::now() < asleep);
        count_.wait(before, std::memory_order_acquire);
    }

private:
    std::atomic<uint32_t> count_{0};
};

// Signals are the application's, to be taken by threads that it knows; not those of a thread's own making, whose
// handlers say where it was, nor those that profilers sample by. Not taken by the calling thread, as long as this
// lives, if `wanted`, nor by threads that it makes.
class BlockedSignals {
public:
    explicit BlockedSignals(bool wanted) : wanted_(wanted) {
        if (wanted_) {
            sigset_t blocked;
            sigfillset(&blocked);
            for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPROF}) {
                sigdelset(&blocked, own);
            }
            pthread_sigmask(SIG_SETMASK, &blocked, &before_);
        }
    }
    ~BlockedSignals() {
        if (wanted_) {
            pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        }
    }
    BlockedSignals(const BlockedSignals &) = delete;
    BlockedSignals &operator=(const BlockedSignals &) = delete;

private:
    const bool wanted_;
    sigset_t before_;
};

// As the process's first thread is, and not as whoever made the thread: on which cores, how urgently. What the system
// does not allow stays as it is. Takes nothing from the heap: an execute may be under way, which does not either.
void schedule_as_process() {
    const pid_t first = getpid();
    sched_param parameters;
    const int policy = sched_getscheduler(first);
    if (policy >= 0 && sched_getparam(first, &parameters) == 0) {
        sched_setscheduler(0, policy, &parameters);
    }
    errno = 0;
    const int nice = getpriority(PRIO_PROCESS, static_cast<id_t>(first));
    if (nice != -1 || errno == 0) {
        setpriority(PRIO_PROCESS, 0, nice);
    }
    // A thread that has been given cores keeps to them when a container is given more.
    const CpuSet cores = process_cores();
    if (!cores.is_empty() && cores != CpuSet::of(0)) {
        sched_setaffinity(0, cores.bytes(), cores.get());
    }
}

class WorkerPool {
public:
    void run(Job &job) {
        {
            const int32_t wanted = std::min(job.workers - 1, kMaxThreads);
            // From before the lock until behind it: a handler may end the process, which takes it.
            const BlockedSignals blocked(size_.load(std::memory_order_relaxed) < wanted);
            const std::lock_guard<std::mutex> lock(mutex_);
            grow(wanted);
            job.following = jobs_;
            jobs_ = &job;
        }
        wanted_.happens(std::min(job.workers - 1, kWakes));
        job.help();
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            remove(job);
        }
        for (uint32_t before = left_.now(); job.helpers.load(std::memory_order_acquire) > 0; before = left_.now()) {
            left_.wait_since(before);
        }
    }

    // Waits for the threads, which end what they have begun. Whoever calls from then on has no help. Where the lock
    // stays closed, a signal has interrupted who holds it, and its handler ends the process: threads end with that.
    void stop() {
        constexpr int kTries = 1000;
        int tries = 0;
        while (!mutex_.try_lock()) {
            if (++tries == kTries) {
                return;
            }
            usleep(1000);
        }
        stopped_ = true;
        mutex_.unlock();
        wanted_.happens_for_all();
        for (int32_t i = 0; i < size_; ++i) {
            pthread_join(threads_[i], nullptr);
        }
    }

private:
    static constexpr int32_t kWakes = 2;  // by each thread that comes, so that many are awake soon
    static constexpr std::chrono::seconds kPause{1};  // before the system is asked again for threads that it refused

    static void *enter(void *pool) {
        schedule_as_process();
        const UsualArithmetic arithmetic;  // that of whoever made the thread may be another
        static_cast<WorkerPool *>(pool)->serve();
        return nullptr;
    }

    void serve() {
        for (;;) {
            const uint32_t before = wanted_.now();
            bool stopped = false;
            if (Job *job = join_a_job(stopped)) {
                if (job->has_more()) {
                    wanted_.happens(kWakes);
                }
                job->help();
                // What is behind this belongs to whoever called.
                if (job->helpers.fetch_sub(1, std::memory_order_acq_rel) == 1) {
                    left_.happens_for_all();
                }
            } else if (stopped) {
                return;
            } else {
                wanted_.wait_since(before);
            }
        }
    }

    Job *join_a_job(bool &stopped) {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopped = stopped_;
        for (Job *job = stopped ? nullptr : jobs_; job; job = job->following) {
            if (job->has_more()) {
                job->helpers.fetch_add(1, std::memory_order_relaxed);
                return job;
            }
        }
        return nullptr;
    }

    void remove(Job &job) {
        Job **link = &jobs_;
        while (*link != &job) {
            link = &(*link)->following;
        }
        *link = job.following;
    }

    // To so many threads, if the system has them. Signals are blocked where there are fewer.
    void grow(int32_t wanted) {
        if (stopped_ || size_ >= wanted || Clock::now() < asks_again_) {
            return;
        }
        while (size_ < wanted && pthread_create(&threads_[size_], nullptr, enter, this) == 0) {
            ++size_;
        }
        if (size_ < wanted) {
            asks_again_ = Clock::now() + kPause;
        }
    }

    std::mutex mutex_;
    Job *jobs_ = nullptr;
    bool stopped_ = false;
    std::atomic<int32_t> size_{0};  // changed under the lock; it never shrinks
    Clock::time_point asks_again_{};
    Event wanted_, left_;
    pthread_t threads_[kMaxThreads] = {};
};

// Never destroyed: threads of the application may call while the process ends.
union PoolStorage {
    constexpr PoolStorage() : pool() {}
    ~PoolStorage() {}
    WorkerPool pool;
};
constinit PoolStorage storage;

// Joins the threads before the library's code goes.
struct AtEnd {
    ~AtEnd() {
        storage.pool.stop();
    }
};
[[maybe_unused]] const AtEnd kAtEnd;

// A child has none of its parent's threads, and nobody who would open the lock that they held.
[[maybe_unused]] const int kForkHandler = pthread_atfork(nullptr, nullptr, [] { new (&storage.pool) WorkerPool; });

}  // namespace

void run_on_workers(int32_t workers, void (*work)(void *closure, int32_t worker), void *closure) {
    Job job{work, closure, workers};
    if (workers > 1) {
        storage.pool.run(job);
    } else {
        job.help();
    }
}

}  // namespace hattn
