// Run while configuring: 0 if Halide has LLVM's backend for PTX, without which it compiles nothing for CUDA.
#include <Halide.h>

int main() {
    return Halide::Target("x86-64-linux-cuda-cuda_capability_80").supported() ? 0 : 1;
}
