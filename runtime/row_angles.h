// What rotary position embedding turns the rows of a tensor on a device by, and where these rows are.
#pragma once

#include <vector>

#include "device/row_runs.h"
#include "rope.h"
#include "row_counts.h"

namespace hattn {

// Of row i of sequence b among all that a tensor has.
int64_t place_of(const RowCounts &rows, int64_t b, int64_t i);

// Angles of each row of the tensor, in float32, at its place.
void compute_angles(const RowTurner &rope, int64_t batch, const RowCounts &rows, RowAngles &angles);

// Every sequence's rows, from their places in one tensor to the same places in another; in place of what runs held.
void list_rows(int64_t batch, const RowCounts &rows, std::vector<RowRun> &runs);

}  // namespace hattn
