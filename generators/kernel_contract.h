// How kernels are called and what their names and tiles mean, as one number: a library and a kernel pack fit together
// if theirs is the same.
#pragma once

#include <cstdint>

namespace hattn::generators {

uint64_t kernel_contract();

}  // namespace hattn::generators
