#include "openmp_threads.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <system_error>

#include <nanobind/nanobind.h>

namespace hattn_python {
namespace {

// Of GNU's libgomp: what compilers make of a parallel region, and a function of the OpenMP API.
struct OpenMp {
    void (*parallel)(void (*region)(void *), void *data, unsigned threads, unsigned flags) = nullptr;
    int (*max_threads)() = nullptr;
};

// The process that OpenMP's threads are of, if that is sure: in a child of fork() OpenMP would wait for them for ever.
pid_t process = 0;

bool is_imported(const char *module) {
    return PyDict_GetItemString(PyImport_GetModuleDict(), module) != nullptr;
}

bool has_other_threads() {
    std::error_code error;
    const std::filesystem::directory_iterator tasks("/proc/self/task", error);
    return !error && std::distance(begin(tasks), end(tasks)) > 1;
}

// Of the library that is loaded, if one is; it stays then.
OpenMp loaded_openmp() {
    OpenMp openmp;
    if (void *library = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD)) {
        openmp.parallel = reinterpret_cast<decltype(openmp.parallel)>(dlsym(library, "GOMP_parallel"));
        openmp.max_threads = reinterpret_cast<decltype(openmp.max_threads)>(dlsym(library, "omp_get_max_threads"));
    }
    return openmp;
}

struct Tasks {
    void (*task)(void *closure, int32_t index);
    void *closure;
    int32_t count;
    std::atomic<int32_t> next{0};
};

void take_tasks(void *data) {
    Tasks &tasks = *static_cast<Tasks *>(data);
    for (int32_t i; (i = tasks.next.fetch_add(1, std::memory_order_relaxed)) < tasks.count;)
        tasks.task(tasks.closure, i);
}

// On as many threads as operators of PyTorch have: for fewer OpenMP would end the others, and make them again.
void run_on_openmp(void *user, int32_t count, void (*task)(void *closure, int32_t index), void *closure) {
    Tasks tasks{task, closure, count};
    if (const OpenMp &openmp = *static_cast<const OpenMp *>(user); getpid() == process)
        openmp.parallel(take_tasks, &tasks, static_cast<unsigned>(openmp.max_threads()), 0);
    else
        take_tasks(&tasks);
}

}  // namespace

void remember_process() {
    // Where PyTorch may have had threads before, one that is alone may be a child that has lost them.
    process = !is_imported("torch") || has_other_threads() ? getpid() : 0;
}

ParallelFor openmp_parallel_for() {
    if (getpid() != process || !is_imported("torch"))
        return {};
    static OpenMp openmp;
    if (!openmp.parallel)
        openmp = loaded_openmp();
    const bool is_there = openmp.parallel && openmp.max_threads && openmp.max_threads() > 1;
    return is_there ? ParallelFor{run_on_openmp, &openmp} : ParallelFor{};
}

}  // namespace hattn_python
