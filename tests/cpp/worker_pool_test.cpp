// The library's own threads: in processes that fork, end, or are given few, and what they take of the application's.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "runtime/cpu_features.h"
#include "runtime/parallel.h"
#include "support/heap_counter.h"

namespace {

// LeakSanitizer cannot look at processes that have changed their user.
bool leaves_leaks_unseen = false;

}  // namespace

extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {
    return leaves_leaks_unseen ? 1 : 0;
}

extern "C" __attribute__((weak)) void __asan_init();

namespace {

// A system that gives the library no threads, and how often it was asked.
std::atomic<bool> refuses_threads = false;
std::atomic<int> refusals = 0;
// A signal that comes while it makes one, and whether that is taken at once, blocked as it may be.
std::atomic<int> raises = 0;
std::atomic<bool> takes_at_once = false;

}  // namespace

// What the library calls for pthread_create(), by the linker's --wrap.
extern "C" int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
extern "C" int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*enter)(void *),
                                     void *argument) {
    if (refuses_threads) {
        ++refusals;
        return EAGAIN;
    }
    if (raises != 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, raises);
        if (takes_at_once) {
            pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
        }
        raise(raises);
    }
    return __real_pthread_create(thread, attributes, enter, argument);
}

namespace {

using hattn::Executor;

int64_t sum_with(int32_t threads) {
    std::atomic<int64_t> total{0};
    hattn::for_each_task(Executor{.threads = threads}, 100, false, [&](int64_t i, int32_t) { total += i; });
    return total.load();
}

// Runs loops until a thread of the pool has taken part in one, which calls `task`; false if none does within `seconds`.
template<typename Task>
bool is_helped(const Task &task, double seconds = 60) {
    std::atomic<bool> helped = false;
    const std::thread::id caller = std::this_thread::get_id();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!helped && std::chrono::steady_clock::now() < deadline) {
        hattn::for_each_task(Executor{.threads = 3}, 30, false, [&](int64_t, int32_t) {
            if (std::this_thread::get_id() != caller) {
                helped = true;
                task();
            }
            usleep(100);
        });
    }
    return helped;
}

bool is_helped(double seconds = 60) {
    return is_helped([] {}, seconds);
}

// What a child process ends with that calls the function.
template<typename Function>
int status_of_child(Function function) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        alarm(100);
        function();
        _exit(99);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
}

// AddressSanitizer's heap, where it is linked, may be locked for ever in a child, by a thread of the parent's: new
// threads wait for it.
bool children_have_threads() {
    return !__asan_init;
}

// They look for work a while before, which is over by then.
TEST(WorkerPool, ThreadsWithoutWorkSleep) {
    ASSERT_TRUE(is_helped());
    usleep(20'000);
    const auto seconds = [](clockid_t clock) {
        timespec now{};
        clock_gettime(clock, &now);
        return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
    };
    const double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    usleep(100'000);
    EXPECT_LT(seconds(CLOCK_PROCESS_CPUTIME_ID) - before, 0.01);
}

// A child has none of the threads that its parent's pool had, and some of these may have been in the middle of it. It
// may end in both ways.
TEST(WorkerPool, ChildrenOfForkHaveThreadsOfTheirOwn) {
    ASSERT_EQ(sum_with(4), 4950);
    std::atomic<bool> done = false;
    std::thread busy([&] {
        while (!done) {
            sum_with(4);
        }
    });
    for (int i = 0; i < 100; ++i) {
        const int status = status_of_child([i] {
            const int result = i % 3 == 2 || (sum_with(4) == 4950 && (!children_have_threads() || is_helped())) ? 0 : 1;
            i % 2 ? exit(result) : _exit(result);
        });
        EXPECT_EQ(status, 0) << "the child of fork " << i;
        if (status != 0) {
            break;
        }
    }
    done = true;
    busy.join();
}

TEST(WorkerPool, AProcessEndsWhileThreadsCall) {
    for (int i = 0; i < 20; ++i) {
        ASSERT_EQ(status_of_child([] {
                      for (int n = 0; n < 3; ++n) {
                          std::thread([] {
                              for (;;) {
                                  sum_with(4);
                              }
                          }).detach();
                      }
                      usleep(2000);
                      exit(sum_with(4) == 4950 ? 0 : 1);
                  }),
                  0);
    }
}

// Such handlers are there, though exit() is not made for them. The signal comes while the pool makes its first threads:
// it waits until these are made, or, where someone lets it through, finds the pool locked by the thread that it stops.
TEST(WorkerPool, AHandlerMayEndTheProcess) {
    for (const bool at_once : {false, true}) {
        EXPECT_EQ(status_of_child([at_once] {
                      signal(SIGUSR1, [](int) { exit(7); });
                      takes_at_once = at_once;
                      raises = SIGUSR1;
                      sum_with(4);
                      exit(1);
                  }),
                  W_EXITCODE(7, 0))
            << at_once;
    }
}

// What children end with in which a test cannot be made.
constexpr int kCannot = 77;

bool cannot(int status) {
    return WIFEXITED(status) && WEXITSTATUS(status) == kCannot;
}

TEST(WorkerPool, FewerThreadsHelpWhereTheSystemGivesNoMore) {
    for (const rlim_t most : {1, 2, 4}) {
        const int status = status_of_child([most] {
            leaves_leaks_unseen = true;
            const rlimit limit = {most, most};
            if (getuid() != 0 || setrlimit(RLIMIT_NPROC, &limit) != 0 || setuid(64999) != 0) {
                _exit(kCannot);
            }
            const bool computes = sum_with(8) == 4950 && sum_with(8) == 4950;
            const bool helped = most > 1 ? is_helped() : is_helped(0.1);
            exit(computes && helped == (most > 1) ? 0 : 1);
        });
        if (cannot(status)) {
            GTEST_SKIP() << "only root can become a user that has no threads yet, and not everywhere";
        }
        EXPECT_EQ(status, 0) << most;
    }
}

TEST(WorkerPool, ThreadsThatWereRefusedAreAskedForNowAndThen) {
    EXPECT_EQ(status_of_child([] {
                  refuses_threads = true;
                  bool computes = true;
                  for (int i = 0; i < 200; ++i) {
                      computes = computes && sum_with(4) == 4950;
                  }
                  const int asked = refusals;
                  refuses_threads = false;
                  exit(computes && asked > 0 && asked < 20 && is_helped() ? 0 : 1);
              }),
              0);
}

TEST(WorkerPool, SignalsAreTheApplications) {
    std::atomic<int> taken = 0, missed = 0;
    EXPECT_TRUE(is_helped([&] {
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGALRM, SIGCHLD, SIGABRT}) {
            taken += sigismember(&blocked, signal) == 0;
        }
        for (const int signal : {SIGSEGV, SIGFPE, SIGPROF}) {
            missed += sigismember(&blocked, signal) == 1;
        }
    }));
    EXPECT_EQ(taken, 0);
    EXPECT_EQ(missed, 0);
}

// Whose first call is made by a thread that is bound to a core.
TEST(WorkerPool, ThreadsRunOnAllCoresOfTheProcess) {
    const int wanted = hattn::process_cores().count();
    EXPECT_EQ(status_of_child([wanted] {
                  std::atomic<int> cores = 0;
                  std::thread([&] {
                      cpu_set_t one;
                      CPU_ZERO(&one);
                      CPU_SET(sched_getcpu(), &one);
                      sched_setaffinity(0, sizeof(one), &one);
                      is_helped([&] {
                          cpu_set_t set;
                          CPU_ZERO(&set);
                          sched_getaffinity(0, sizeof(set), &set);
                          cores = CPU_COUNT(&set);
                      });
                  }).join();
                  exit(cores == wanted ? 0 : 1);
              }),
              0);
}

// Whose first call is made by a thread that others go before.
TEST(WorkerPool, ThreadsAreAsUrgentAsTheProcess) {
    const int wanted = getpriority(PRIO_PROCESS, 0);
    const int status = status_of_child([wanted] {
        std::atomic<int> nice = 19, policy = SCHED_BATCH;
        std::atomic<bool> may_be = false;
        std::thread([&] {
            const sched_param parameters = {};
            sched_setscheduler(0, SCHED_BATCH, &parameters);
            setpriority(PRIO_PROCESS, 0, 19);
            may_be = setpriority(PRIO_PROCESS, 0, wanted) == 0;
            setpriority(PRIO_PROCESS, 0, 19);
            is_helped([&] {
                nice = getpriority(PRIO_PROCESS, 0);
                policy = sched_getscheduler(0);
            });
        }).join();
        if (!may_be) {
            _exit(kCannot);
        }
        exit(nice == wanted && policy == sched_getscheduler(getpid()) ? 0 : 1);
    });
    if (cannot(status)) {
        GTEST_SKIP() << "the system lets no thread become more urgent than it is";
    }
    EXPECT_EQ(status, 0);
}

// They may begin in the middle of an execute, which takes nothing.
TEST(WorkerPool, ThreadsBeginWithoutTheHeap) {
    std::atomic<uint64_t> taken = 1;
    ASSERT_TRUE(is_helped([&] { taken = hattn::test::heap_allocations_of_thread(); }));
    EXPECT_EQ(taken, 0u);
}

// Where variables of threads are made when they are first looked at.
TEST(WorkerPool, ThreadsOfALoadedLibraryBeginWithoutTheHeap) {
    void *module = dlopen(HATTN_POOL_MODULE, RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(module) << dlerror();
    using RunInModule = void (*)(int32_t, void (*)(void *, int32_t), void *);
    const auto run = reinterpret_cast<RunInModule>(dlsym(module, "run_in_module"));
    ASSERT_TRUE(run) << dlerror();

    struct Helpers {
        std::thread::id caller = std::this_thread::get_id();
        std::atomic<int> count = 0;
        std::atomic<uint64_t> taken = 0;
    } helpers;
    const auto work = [](void *closure, int32_t) {
        auto &all = *static_cast<Helpers *>(closure);
        if (std::this_thread::get_id() != all.caller) {
            all.taken += hattn::test::heap_allocations_of_thread();
            ++all.count;
        }
        usleep(100);
    };
    for (int i = 0; i < 100000 && helpers.count == 0; ++i) {
        run(3, work, &helpers);
    }
    EXPECT_GT(helpers.count, 0);
    EXPECT_EQ(helpers.taken, 0u);
    EXPECT_EQ(dlclose(module), 0);
}

// Such as in a sandbox.
TEST(WorkerPool, ThreadsHelpWhereTheyMayNotBeScheduled) {
    const int status = status_of_child([] {
        sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setaffinity, 2, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setscheduler, 1, 0),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        };
        const sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
            _exit(kCannot);
        }
        exit(is_helped() ? 0 : 1);
    });
    if (cannot(status)) {
        GTEST_SKIP() << "the system takes no filters of calls";
    }
    EXPECT_EQ(status, 0);
}

}  // namespace
