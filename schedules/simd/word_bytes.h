// A lowering pass: bytes of words, and bytes that are shifted as words.
#pragma once

#include "Halide.h"

namespace hattn::schedules::simd {

// Calls of generators::kWordByteCall become what they stand for: a byte of each word, where it lies. Vectors of the
// first and of the second bytes of the same words, stored one after the other, are taken by one shuffle. Halide's own
// casts shift and narrow each of them.
// x86 has no shift of bytes. LLVM takes an instruction of GFNI in its place, which waits for the units of products on
// AMD's CPUs and brings no sign along; of words it is a shift, and one instruction for the bits that stay and the sign.
class WordBytes : public Halide::Internal::IRMutator {
public:
    explicit WordBytes(const Halide::Target &target) : shifts_words_(target.arch == Halide::Target::X86) {}

private:
    using IRMutator::visit;

    Halide::Expr visit(const Halide::Internal::Call *call) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Block *block) override;

    const bool shifts_words_;
};

}  // namespace hattn::schedules::simd
