// Which units of a launch share a compute unit.
#pragma once

#include <cstdint>

#include "packed_units.h"

namespace hattn {

// The order of units of which the first have most to do, for compute units that hold two of them at once. Each takes
// one before any takes a second. So where none takes a third, those that start first are turned around: the longest of
// the second ones go where the shortest are.
UnitOrder in_pairs(const UnitOrder &order, int64_t compute_units);

// Which unit it is that starts behind so many others, as kernels have it (schedules/gpu/unit_launch.cpp).
int64_t unit_at(const UnitOrder &order, int64_t start);

}  // namespace hattn
