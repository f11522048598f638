// Kernel packs: kernels compiled into a shared object that the library loads at run time, see runtime/pack_file.h.
#pragma once

#include <string>
#include <vector>

#include "kernel_spec.h"

namespace hattn::generators {

// Needs the assembler and the linker of binutils, `as` and `ld`, or what $HATTN_AS and $HATTN_LD name. The file
// appears whole or not at all.
void write_pack(const std::vector<NamedKernel> &kernels, const std::string &path);

}  // namespace hattn::generators
