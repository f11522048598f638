// A lowering pass: products of small matrices by AMX.
#pragma once

#include "Halide.h"

namespace hattn::schedules::x86 {

// Sums of 16 x 16 products of bfloat16 numbers, or of bytes with signs, that a stage sets to zero, adds to in a loop,
// and stores elsewhere become a register, and each pass of that loop over 32 elements, or 64 bytes, one instruction
// (tdpbf16ps, tdpbssd). Loops of few passes right around are one pass with as many registers, whose products share
// sides where they are the same. Bytes of the left side may be those of words of 32 bits.
//
// Products may be on a condition, which has to be the same for all of such a pass: it is evaluated once.
//
// Halide's own MemoryType::AMXTile knows one register of sums at a time, and recognises what it multiplies by how the
// simplifier happens to write its indices. Here distances are differences of indices.
//
// Stages are those of matrices.cpp and byte_matrices.cpp: any other sums in the way that they mark theirs (kept on the
// stack) are refused, as an error says.
class MatrixTiles : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;
};

}  // namespace hattn::schedules::x86
