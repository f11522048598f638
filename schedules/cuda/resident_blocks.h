// How many blocks of a kernel a multiprocessor is to have at once.
#pragma once

#include <string>

#include "Halide.h"

namespace hattn::schedules::cuda {

// PTX that asks for as few registers as let so many blocks of so many threads be there at once: Halide has no word for
// it. Comments go, so that the text does not grow. Throws std::runtime_error where it does, or has no kernel.
std::string with_resident_blocks(const std::string &ptx, int threads, int blocks);

// Likewise in a module that is about to be compiled, in place. Throws std::runtime_error also where its blocks have
// another number of threads: a GPU refuses launches of more.
void ask_for_resident_blocks(const Halide::Module &module, int threads, int blocks);

}  // namespace hattn::schedules::cuda
