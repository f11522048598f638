// The part of the rule that is about flash: which kernels it takes, and how rows fill their tiles.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "selection.h"

namespace hattn {

// Elements of most models' heads. Longer ones take more where what is made of keys is not for so many rows.
inline constexpr int64_t kUsualHead = 128;

// Up to this many rows per head it matters how they fill tiles.
inline constexpr int64_t kFewRows = 96;

// Those of flash: where it multiplies terms, short prompts and few rows are left to float32.
const std::vector<const KernelInfo *> &flash_kernels(const KernelSet &kernels, const Problem &problem,
                                                     int64_t query_length, int64_t kv_length);

// The small tile, unless the large one is usual, or a few rows fill it better.
Choice choose_flash(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length);

// What few rows, which see about the same keys, take for as many of these as a chunk has, in percent of fifths of a row
// of float32.
int64_t cost_of_few_rows(const KernelSet &kernels, const Choice &flash, const Problem &problem, int64_t query_length,
                         int64_t kv_length);

// Gives the last rows of a head, of which a tile of flash would have few, to smaller tiles: those that remain to one,
// or with the rows of the last full tile to two, whichever computes fewer. These sum up alike, so that over the same
// keys their rows have the bits that they would have in a tile of the choice's kernel.
void fill_last_tiles(const KernelSet &kernels, int64_t query_length, Choice &choice);

// Rows of a head fill flash tiles, unless they are few: then rows of several heads of a kv head do, in the kernel and
// the shape that take the least time for tiles, filled or not, and what they see; of equally good kernels the usual
// one.
Choice fill_flash_tiles(const KernelSet &set, std::span<const KernelInfo *const> kernels, const KernelInfo *usual,
                        const Problem &problem, int64_t query_length, int64_t kv_length);

}  // namespace hattn
