// Rows of tensors on a device, as launches take them.
#pragma once

#include <cstdint>
#include <vector>

namespace hattn {

// Rows, of every head, that lie one after the other in both tensors.
struct RowRun {
    int64_t from, from_row;  // sequence or page of the tensor that is read
    int64_t to, to_row;      // and of the one that is written
    int64_t rows;
    int64_t angles;  // of the first row, among RowAngles
};

// What rows are turned by (generators/append.h): [rows, pairs] each.
struct RowAngles {
    int64_t pairs = 0;
    bool interleaved = false;
    std::vector<float> cosines, sines;
};

}  // namespace hattn
