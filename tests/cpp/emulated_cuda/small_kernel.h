// Kernels of a few lines of PTX for tests of the emulator.
#pragma once

#include <string>
#include <vector>

#include "decode.h"
#include "launch.h"

namespace hattn::emulated_cuda {

// A kernel with one parameter, a pointer in %rd1 to global memory, and %r1 the thread; registers %p %rs %rd 0 to 31, %r
// 0 to 63.
inline Program small_kernel(const std::string &body) {
    const std::string text = R"(
.version 7.0
.target sm_80
.visible .entry kernel(
    .param .u64 .ptr .align 1 kernel_param_0
)
{
    .reg .pred %p<32>;
    .reg .b16 %rs<32>;
    .reg .b32 %r<64>;
    .reg .b64 %rd<32>;
    ld.param.b64 %rd1, [kernel_param_0];
    mov.u32 %r1, %tid.x;
)" + body + "\n    ret;\n}\n";
    return decode(parse_ptx(text).at(0));
}

struct SmallLaunch {
    uint32_t threads = 32;
    uint32_t blocks = 1;
    uint32_t shared_bytes = 0;
    LeftOut left_out = {};
};

// Runs it on `memory`, which is copied to the device and back.
inline void run(const std::string &body, std::vector<uint32_t> &memory, const SmallLaunch &sizes = {}) {
    Allocations allocations;
    const uint64_t bytes = memory.size() * sizeof(uint32_t);
    uint64_t address = allocations.allocate(bytes);
    auto *device = reinterpret_cast<uint32_t *>(address);
    std::copy(memory.begin(), memory.end(), device);
    void *arguments[] = {&address};
    launch(small_kernel(body), {{sizes.blocks, 1, 1}, {sizes.threads, 1, 1}, sizes.shared_bytes}, arguments,
           allocations, sizes.left_out);
    std::copy(device, device + memory.size(), memory.begin());
}

}  // namespace hattn::emulated_cuda
