// From text to programs.
#pragma once

#include <string_view>

#include "program.h"
#include "ptx_text.h"

namespace hattn::emulated_cuda {

// Throws Fault where an instruction is not known.
Program decode(const PtxEntry &entry);

}  // namespace hattn::emulated_cuda
