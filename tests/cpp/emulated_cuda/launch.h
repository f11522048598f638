// Runs a kernel: blocks one after the other, the warps of a block in turn from barrier to barrier.
#pragma once

#include <cstdint>
#include <vector>

#include "memory.h"
#include "program.h"

namespace hattn::emulated_cuda {

struct LaunchShape {
    uint32_t blocks[3];
    uint32_t threads[3];
    uint32_t shared_bytes;
};

// `without_barrier`: one that is left out, counted from 1 through the program's text; 0: none. Throws Fault.
void launch(const Program &program, const LaunchShape &shape, void *const *arguments, Allocations &allocations,
            int without_barrier = 0);

}  // namespace hattn::emulated_cuda
