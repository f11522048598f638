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

// A barrier, and a wait for copies, that are left out: each counted from 1 through the program's text; 0: none.
struct LeftOut {
    int barrier = 0;
    int wait = 0;
};

// Throws Fault.
void launch(const Program &program, const LaunchShape &shape, void *const *arguments, Allocations &allocations,
            const LeftOut &left_out = {});

}  // namespace hattn::emulated_cuda
