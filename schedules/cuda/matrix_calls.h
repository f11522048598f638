// Matrix products of a warp in compiled device code.
#pragma once

#include <string>

#include "Halide.h"

namespace hattn::schedules::cuda {

// Stands for mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 until device code is compiled: an external function of
// four elements of C and the registers of A (four) and B (two), that returns four elements of D as 128 bits.
inline constexpr const char *kMatrixCall = "hattn_mma_m16n8k16_f16";

// Halide has no instruction of that name, and LLVM's intrinsic returns what Halide cannot hold. So the code calls a
// function, and here every call in the text becomes the instruction. Throws std::runtime_error where a call is not as
// LLVM 21 writes it.
std::string replace_matrix_calls(const std::string &ptx);

// Likewise in a module that is about to be compiled, in place. The text does not grow.
void replace_matrix_calls(const Halide::Module &module);

}  // namespace hattn::schedules::cuda
