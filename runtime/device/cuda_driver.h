#pragma once

namespace hattn {

// Whether this machine has one, with or without a GPU that works. (Its use also has the linker take cuda_driver.cpp,
// and with it the function that replaces one of Halide's.)
bool has_cuda_driver();

}  // namespace hattn
