// What differs between drivers without a GPU: what becomes of memory and kernels. no_kernels.cpp: nothing happens.
// ../emulated_cuda/engine.cpp: kernels are interpreted. Numbers returned are results of the CUDA Driver API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hattn::stub_cuda {

// `shared_bytes` of every block.
struct LaunchSizes {
    unsigned blocks[3];
    unsigned threads[3];
    unsigned shared_bytes;
};

int load_module(void **module, const char *image);
int find_kernel(void **kernel, void *module, const char *name);
uint64_t allocate(size_t bytes);
void release(uint64_t address);
// `message`: what went wrong, if anything did.
int launch(void *kernel, const LaunchSizes &sizes, void **arguments, std::string &message);

}  // namespace hattn::stub_cuda
