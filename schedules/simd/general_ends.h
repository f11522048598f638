// A lowering pass: the ends of loops have no code for certain heads.
#pragma once

#include <map>
#include <string>

#include "Halide.h"

namespace hattn::schedules::simd {

// Loops over blocks of keys that are scored with the head in the lanes, and over passes of the elements of a head,
// whose names no other loop has.
inline constexpr const char *kKeyBlockLoop = "scored_block", *kPassLoop = "d_pass";

// Where a condition holds in all passes of a loop but the last ones, Halide copies the loop's body for these, and with
// it what is specialized for heads of keys or values of a certain size (`extent == 128`) or of whole passes
// (`extent % 32 == 0`). Such an end keeps the general branch alone, which has to compute the same: not what is
// specialized for all other sizes. Loops that have a beginning apart are left alone.
class GeneralEnds : public Halide::Internal::IRMutator {
public:
    using IRMutator::mutate;
    Halide::Internal::Stmt mutate(const Halide::Internal::Stmt &statement) override;

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;
    Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override;
    Halide::Internal::Stmt visit(const Halide::Internal::IfThenElse *branches) override;

    std::map<std::string, int> ends_;              // of loops, less those loops
    Halide::Internal::Scope<Halide::Expr> named_;  // conditions
    bool counted_ = false, in_end_ = false;
};

}  // namespace hattn::schedules::simd
