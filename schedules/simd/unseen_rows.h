// A lowering pass: products that no row needs, as limits hide their keys from it.
#pragma once

#include <map>
#include <string>

#include "Halide.h"

namespace hattn::schedules::simd {

// Of a tile's rows the first ones see fewer keys than the last: of the block on the diagonal half is computed for
// nothing where registers hold all rows of a tile at once.
//
// A Func of generators::kUnseenRows is 0 and is added to products. Where it is computed, it says of the keys at hand
// whether they are hidden from the first so many rows, or from more of them (generators::kUnseenRowsCall: the rows of a
// tile, then numbers of rows, in rising order, and whether keys are hidden from as many). What consumes it is made
// several times then: with the sums of all rows, and for each of these numbers with those of the others alone.
class UnseenRows : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::Allocate *allocation) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Free *freed) override;
    Halide::Internal::Stmt visit(const Halide::Internal::ProducerConsumer *stage) override;
    Halide::Expr visit(const Halide::Internal::Load *load) override;
    Halide::Expr visit(const Halide::Internal::Add *add) override;

    std::map<std::string, Halide::Expr> said_;  // what such Funcs have been given
};

}  // namespace hattn::schedules::simd
