// A lowering pass: nests of loops that multiply small matrices become instructions for tensor cores.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "Halide.h"
#include "warpgroup_matrix.h"

namespace hattn::schedules::cuda {

inline constexpr int kWarp = 32;  // threads

// Names of the loops of a nest that the pass looks for.
inline constexpr const char *kMatrixSum = "matrix_sum";        // over k, 16
inline constexpr const char *kMatrixHalf = "matrix_half";      // which half of the 16 rows, 2
inline constexpr const char *kMatrixColumn = "matrix_column";  // which of a thread's two columns, 2

// The nest, in any order of its loops,
//
//     for matrix_sum in 0..16, matrix_half in 0..2, matrix_column in 0..2
//         product(...) += float(A(m, k)) * float(B(k, n))
//
// where lane = thread_id_x, of 32, computes rows m = lane / 4 + 8 * matrix_half and columns
// n = lane % 4 * 2 + matrix_column, is a 16 x 8 x 16 product as mma.m16n8k16 lays it over a warp (PTX ISA, "Matrix
// Fragments for mma.m16n8k16"). As it stands it is right, with each thread adding up its own four elements. The pass
// makes one call of it, of a function that does not exist: replace_matrix_calls() puts the instruction in its place.
// A and B are float16 or bfloat16 numbers, or their bits, in memory that the threads of the warp share. What lies in
// the block's shared memory in rows of 16 bytes, at multiples of those, is loaded by ldmatrix, transposed where it has
// to be, and once for nests that follow each other. Of anything else, where two of an operand lie side by side, the
// first has to be at an even index, since they are loaded as one. A may also be in registers, where each lane has
// stored just what the instruction takes from it: the product of one nest, rounded, is such an operand of another.
//
// Two float32 numbers that are rounded to bfloat16 side by side (number_formats.h) are one call as well.
//
// Of warpgroups, nests that follow each other are multiplied by instructions of all four warps (warpgroup_matrix.h).
//
// Throws std::runtime_error where there is a loop over matrix_sum that is no such nest.
class WarpMatrix : public Halide::Internal::IRMutator {
public:
    explicit WarpMatrix(std::optional<WarpgroupMatrices> warpgroups = {}) : warpgroups_(warpgroups) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;
    Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Block *block) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Allocate *allocation) override;
    Halide::Expr visit(const Halide::Internal::Cast *cast) override;

    // What is between nests goes before each of them.
    Halide::Internal::Stmt multiply(const std::vector<Halide::Internal::Stmt> &nests,
                                    const std::vector<Halide::Internal::Stmt> &between);

    const std::optional<WarpgroupMatrices> warpgroups_;
    int groups_ = 0;                 // of these, so far
    std::string lane_, warp_;        // the loops over threads of a warp, and over warps, around the statement at hand
    std::set<std::string> threads_;  // all loops over threads
    std::string shared_;             // the block's shared memory, which Halide makes one array
};

}  // namespace hattn::schedules::cuda
