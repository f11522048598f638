// PyTorch's threads for computing on the CPU, which are those of OpenMP.
#pragma once

#include "hattn/hattn.h"

namespace hattn_python {

// What a context may have to run its tasks by, see hattn_context_desc.
struct ParallelFor {
    hattn_parallel_for run = nullptr;
    void *user = nullptr;
};

// Runs tasks on the threads that GNU's OpenMP keeps for whichever thread calls, as PyTorch's operators do: without work
// they hold their cores for milliseconds, and others would wait, see decision 0119. Null where PyTorch is not imported
// or has a single thread, where it brings no such OpenMP, and where a fork() may have lost the threads.
// The GIL must be held.
ParallelFor openmp_parallel_for();

// To be called once, while the module is imported: says later whether there has been a fork().
void remember_process();

}  // namespace hattn_python
