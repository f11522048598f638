// Nests of loops that multiply small matrices, see warp_matrix.h.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "Halide.h"

namespace hattn::schedules::cuda {

// With all lets substituted.
struct Nest {
    std::string sum, half, column;  // names of its loops
    std::string product;
    Halide::Expr index;  // of the element of the product
    const Halide::Internal::Load *a = nullptr, *b = nullptr;
    bool is_bfloat16 = false;
    Halide::Expr keep;  // holds what a and b point into
};

// Of the outermost loop. Nothing if there is no such nest.
std::optional<Nest> match_nest(const Halide::Internal::For *loop);
// What may be one, within lets, which are substituted; else null.
Halide::Internal::Stmt nest_in(Halide::Internal::Stmt statement);
// Whether a statement is a stage between nests, see spread_copies.h.
bool is_copy(const Halide::Internal::Stmt &statement);

// An index, or part of one, where variables have these values.
Halide::Expr at(const Halide::Expr &index, const std::map<std::string, Halide::Expr> &values);

// The four registers of A that a lane has, where they are in registers, or in memory in any way.
std::vector<Halide::Expr> registers_of_a(const Nest &nest, const Halide::Expr &lane);

// Two elements of an operand in a register.
Halide::Expr pair_of(const Halide::Internal::Load *from, const Halide::Expr &first, const Halide::Expr &second);

}  // namespace hattn::schedules::cuda
