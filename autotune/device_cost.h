// What a candidate for a device costs, roughly: for ranking candidates before any is timed.
#pragma once

#include "candidate.h"
#include "shape.h"

namespace hattn::autotune {

// compute_units: of the device, each of which computes one tile at a time.
double predicted_device_seconds(const Candidate &candidate, const Shape &shape, double compute_units);

}  // namespace hattn::autotune
