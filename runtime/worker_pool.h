// Threads of the process that help whoever calls the library; all contexts share them.
#pragma once

#include <cstdint>

namespace hattn {

// Calls work(closure, w) for every w in [0, workers), on the calling thread and on as many others as come in time, and
// returns after the last. Threads are made as they are needed and stay; where the system gives no more, fewer help.
// They take no signals but those of their own making and SIGPROF, run on the cores and with the priority of the
// process's first thread, and end with the library. A child of fork() makes its own. work may not throw, nor call this.
void run_on_workers(int32_t workers, void (*work)(void *closure, int32_t worker), void *closure);

}  // namespace hattn
