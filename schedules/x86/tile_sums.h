// What loops over a small matrix of sums say, for matrix_tiles.h.
#pragma once

#include <string>
#include <vector>

#include "Halide.h"
#include "generators/attention_stages.h"

namespace hattn::schedules::x86 {

inline constexpr int kSide = generators::kMatrixColumns;  // rows and columns of sums
inline constexpr int kDepth = generators::kMatrixDepth;   // bfloat16 elements of a side, by pairs

// What products are of. A row of a side has 64 bytes: the right one so many elements of each column side by side.
struct MatrixNumbers {
    Halide::Type type, sum;

    int beside() const {
        return sum.bytes() / type.bytes();
    }
    int depth() const {  // elements of a side
        return kSide * beside();
    }
};

// Registers of sums that are computed together: of eight, with those for sides of products.
inline constexpr int kMostJoined = 4;

// Where rows of a matrix lie.
struct Rows {
    Halide::Expr array;          // its address
    Halide::Expr start, stride;  // in elements
};

// Sides of 16 rows and of 16 columns; the right one in pairs of rows, or in fours.
struct Product {
    Rows left, right;
};

// What becomes of a tile of sums.
struct Sums {
    std::string name;
    MatrixNumbers of;
    std::vector<Halide::Internal::Stmt> loops;  // over blocks of elements, the outermost first
    std::vector<Product> products;
    Halide::Expr condition;  // of the first product, which that of all is; or undefined
    Rows stored;
};

// Of the sums that an allocation holds. Throws std::runtime_error if they are used in another way than to be set to
// zero, added to in a loop and stored.
Sums sums_of(const Halide::Internal::Allocate *tile);

[[noreturn]] void refuse(const char *what, const Halide::Internal::Stmt &statement);

}  // namespace hattn::schedules::x86
