// What Halide has no instructions for, in compiled device code: matrix products of a warp, copies under way.
#pragma once

#include <string>

#include "Halide.h"

namespace hattn::schedules::cuda {

// Stand for mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32, and of bfloat16, until device code is compiled: external
// functions of four elements of C and the registers of A (four) and B (two), that return four elements of D as 128
// bits.
inline constexpr const char *kFloat16Call = "hattn_mma_m16n8k16_f16";
inline constexpr const char *kBfloat16Call = "hattn_mma_m16n8k16_bf16";

// ldmatrix.sync.aligned.m8n8.x4.shared.b16, and with .trans: of an address in shared memory, in bytes, the four
// registers as 128 bits. Others than products, they read memory and stay in their place.
inline constexpr const char *kMatrixLoadCall = "hattn_load_matrix_m8n8_x4";
inline constexpr const char *kTransposedLoadCall = "hattn_load_matrix_m8n8_x4_transposed";

// cp.async.cg.shared.global of 16 bytes: of an address in shared memory, in bytes, a constant that is added to it, how
// many bytes there are to copy, 16 or 0, in front of zeros, and the four words that are there as a load from memory has
// them: the call becomes a copy from where that load is from, and the load goes.
inline constexpr const char *kCopyCall = "hattn_copy_16_bytes";
// Likewise, with one more number: if it is not 0. Nothing branches.
inline constexpr const char *kConditionalCopyCall = "hattn_copy_16_bytes_if";
// cp.async.commit_group: what the thread has started since the last one is a group.
inline constexpr const char *kCommitCall = "hattn_commit_copies";
// cp.async.wait_group: until all groups of the thread but so many, a constant, are there.
inline constexpr const char *kWaitCall = "hattn_wait_for_copies";

// cvt.rn.bf16x2.f32: of two float32 numbers the nearest bfloat16 ones, the first in the lower half of 32 bits.
inline constexpr const char *kBfloat16PairCall = "hattn_bfloat16_pair";

// shfl.sync.bfly.b32: what the lane holds whose number differs by a mask, a constant, of a float32 number. All lanes
// take part.
inline constexpr const char *kExchangeCall = "hattn_exchange_lanes";
// vote.sync.any: 1 where a number is not 0 in any lane, else 0. All lanes take part.
inline constexpr const char *kAnyLaneCall = "hattn_any_lane";

// Halide has no instruction of that name, and LLVM's intrinsic returns what Halide cannot hold. So the code calls a
// function, and here every call in the text becomes the instruction. Throws std::runtime_error where a call is not as
// LLVM 21 writes it.
std::string replace_matrix_calls(const std::string &ptx);

// Likewise in a module that is about to be compiled, in place. The text does not grow.
void replace_matrix_calls(const Halide::Module &module);

}  // namespace hattn::schedules::cuda
