// How the rows of a head are cut into tiles: full ones, and a last one with what remains; or, at the end, tiles of
// fewer rows.
#pragma once

#include <cstdint>

#include "selection.h"

namespace hattn {

// Rows of each head of a tile, and what computes them.
struct RowTile {
    int64_t row, rows;
    const KernelInfo *kernel;
};

// Rows that a kernel computes in a tile of so many, of all heads.
int64_t computed_rows(const KernelInfo &kernel, int64_t filled_rows);

class RowTiles {
public:
    RowTiles() = default;
    RowTiles(const Choice &choice, int64_t query_length);

    int64_t count() const {
        return usual_ + last_;
    }
    RowTile operator[](int64_t i) const;
    // Rows that are computed in all tiles, of all their heads, those that tiles do not hold too.
    int64_t computed_rows() const;
    // Whether the choice's last tiles, in place of as many others, hold the rows that are theirs then.
    bool hold_all() const {
        return usual_ * rows_ + last_ * last_rows_ >= query_length_;
    }

private:
    const KernelInfo *kernel_ = nullptr, *last_kernel_ = nullptr;
    int64_t query_length_ = 0, heads_ = 1;
    int64_t rows_ = 0, last_rows_ = 0;  // of each head of a tile
    int64_t usual_ = 0, last_ = 0;      // tiles
};

}  // namespace hattn
