#pragma once

#include "Halide.h"

namespace hattn::generators {

// The module with its device code packed, as the library expects it (runtime/device/device_code.h).
Halide::Module with_packed_code(const Halide::Module &module);

}  // namespace hattn::generators
