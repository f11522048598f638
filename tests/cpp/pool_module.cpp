// The pool in a library that is loaded late, as Python's modules are: variables of threads lie elsewhere there.
#include <cstdint>

#include "runtime/worker_pool.h"

extern "C" __attribute__((visibility("default"))) void run_in_module(int32_t workers, void (*work)(void *, int32_t),
                                                                     void *closure) {
    hattn::run_on_workers(workers, work, closure);
}
