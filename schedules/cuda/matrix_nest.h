// Nests of loops that multiply small matrices, see warp_matrix.h.
#pragma once

#include <optional>
#include <string>

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

}  // namespace hattn::schedules::cuda
