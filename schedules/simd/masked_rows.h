// A lowering pass: the end of a row is loaded under a mask.
#pragma once

#include <span>
#include <string_view>

#include "Halide.h"

namespace hattn::schedules::simd {

// A vector whose last elements lie behind the last one of a row takes that one again in their place (see
// element_of_head() and ScoreStages), by an index for each: which LLVM makes loads one by one of. Here it is one load
// that leaves them out, and they are 0. Nothing depends on them: their queries are 0, and their outputs are not stored;
// operands of hooks that lie behind the last key are of scores that limits mask.
class MaskedRows : public Halide::Internal::IRMutator {
public:
    explicit MaskedRows(const Halide::Target &target);

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override;
    Halide::Expr visit(const Halide::Internal::Let *let) override;
    Halide::Expr visit(const Halide::Internal::Load *load) override;

    std::span<const std::string_view> maskable_;           // tensors that the target has masks for
    Halide::Internal::Scope<Halide::Expr> named_vectors_;  // of indices
};

}  // namespace hattn::schedules::simd
