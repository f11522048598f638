// The rule that chooses where nothing was measured. Its constants hold for no machine in particular; what is known of
// machines is in tuning databases.
#pragma once

#include <span>

#include "selection.h"

namespace hattn {

// Those that compute an algorithm for a sequence with so many queries and keys.
const std::vector<const KernelInfo *> &kernels_of(const KernelSet &kernels, hattn_algorithm algorithm,
                                                  const Problem &problem, int64_t query_length, int64_t kv_length);
// Those of flash: where it multiplies terms, short prompts and few rows are left to float32.
const std::vector<const KernelInfo *> &flash_kernels(const KernelSet &kernels, const Problem &problem,
                                                     int64_t query_length, int64_t kv_length);

// Up to this many keys the rule may choose naive by itself, for sequences of the problem.
int64_t most_naive_keys(const KernelSet &kernels, const Problem &problem);

Choice choose_by_rule(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length);

// The smallest tile that holds all rows, else the largest.
const KernelInfo *fitting(const std::vector<const KernelInfo *> &by_rows, int64_t rows);

// Gives the last rows of a head, of which a tile of flash would have few, to smaller tiles: those that remain to one,
// or with the rows of the last full tile to two, whichever computes fewer. These sum up alike, so that over the same
// keys their rows have the bits that they would have in a tile of the choice's kernel.
void fill_last_tiles(const KernelSet &kernels, int64_t query_length, Choice &choice);

// Rows of a head fill flash tiles, unless they are few: then rows of several heads of a kv head do, in the kernel and
// the shape that take the least time for tiles, filled or not, and what they see; of equally good kernels the usual
// one.
Choice fill_flash_tiles(std::span<const KernelInfo *const> kernels, const KernelInfo *usual, const Problem &problem,
                        int64_t query_length, int64_t kv_length);

}  // namespace hattn
