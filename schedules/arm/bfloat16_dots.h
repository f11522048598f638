// Products of bfloat16 pairs by `bfdot` (FEAT_BF16 of Armv8.6), for which Halide has no pattern, nor a way to call an
// intrinsic function on vectors. But it has one for `sdot`, which takes the same operands: 128 bits each, the second
// one, or 32 bits of it for all lanes. So a lowering pass writes products of pairs as those of fours of bytes, and in
// what LLVM makes of these the instructions are changed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "Halide.h"

namespace hattn::schedules::arm {

// Sums of two products of bfloat16 numbers in each lane, added to vectors of float32 of whole 128 bits, become dot
// products of the bytes that these numbers have, on bits of float32.
class Bfloat16Dots : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Expr visit(const Halide::Internal::Add *add) override;
};

// The instructions that stand in, of code in which no others of their kind are: assembly as LLVM writes it, and
// machine code, where the number of those that were changed is returned.
std::string with_bfdot(std::string assembly);
int replace_dots(std::span<uint32_t> instructions);
// Likewise of a relocatable object for 64-bit ARM, in these functions. Throws std::runtime_error where it is something
// else, or if one of them is not there, or has none.
void replace_dots_in_object(const std::string &path, const std::vector<std::string> &functions);

}  // namespace hattn::schedules::arm
