// Copies of a tile, one by one between the products of another.
#pragma once

#include <string>
#include <vector>

#include "Halide.h"

namespace hattn::schedules::cuda {

// What a stage that brings a tile has for rows that lie one after the other, its first case, and for all others.
struct TileCopies {
    // Of the first case each store by itself, where it is what is to be done: all are in one basic block with the
    // products around them, so that address arithmetic and the queue of loads and stores are no reason to wait.
    std::vector<Halide::Internal::Stmt> single;
    Halide::Internal::Stmt others;
};

// Of the stage, which is of that name; under a condition. Throws std::runtime_error where the stage is anything but
// such a choice of loops of stores.
TileCopies copies_of_tile(const std::string &name, const Halide::Internal::Stmt &stage, const Halide::Expr &condition);

// The copies among the products (warp_matrix.h) in what uses a tile, the last of them long before the last product.
// Throws std::runtime_error where there are no products.
Halide::Internal::Stmt among_products(const Halide::Internal::Stmt &user, const std::string &tile,
                                      const std::vector<Halide::Internal::Stmt> &copies);

}  // namespace hattn::schedules::cuda
