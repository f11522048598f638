// Ragged rows.
#pragma once

#include <cstdint>

namespace hattn {

// How many of the rows of a tensor belong to each sequence: the leading ones.
struct RowCounts {
    const int32_t *lengths;  // null: all
    int64_t rows;

    int64_t of(int64_t sequence) const {
        return lengths ? lengths[sequence] : rows;
    }
};

}  // namespace hattn
