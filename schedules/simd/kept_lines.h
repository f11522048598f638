// A lowering pass: cache lines that are asked for stay in the caches.
#pragma once

#include <vector>

#include "Halide.h"

namespace hattn::schedules::simd {

// Halide's own prefetch is one of lines that are used once: `prefetchnta` of x86, which CPUs of Intel put into the
// first-level cache alone. What is not used before it is evicted from there comes from memory again. Here the request
// is for all caches (`prefetcht0`, `prfm pldl1keep`), or all but the first (`prefetcht1`, `pldl2keep`), a statement
// before the one whose value has Halide's. See decisions 0052 and 0086.
class KeptLines : public Halide::Internal::IRMutator {
public:
    explicit KeptLines(bool in_first_level) : in_first_level_(in_first_level) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::Store *store) override;
    Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override;
    Halide::Expr visit(const Halide::Internal::Let *let) override;
    Halide::Expr visit(const Halide::Internal::Call *call) override;

    bool in_first_level_;
    std::vector<Halide::Internal::Stmt> asked_;  // by the statement at hand
};

}  // namespace hattn::schedules::simd
