// A lowering pass: bytes of words.
#pragma once

#include "Halide.h"

namespace hattn::schedules::simd {

// Calls of generators::kWordByteCall become what they stand for: a byte of each word, where it lies. Vectors of the
// first and of the second bytes of the same words, stored one after the other, are taken by one shuffle. Halide's own
// casts shift and narrow each of them.
class WordBytes : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Expr visit(const Halide::Internal::Call *call) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Block *block) override;
};

}  // namespace hattn::schedules::simd
