// A model of how long a choice takes, good enough to rank choices before anything is timed. How good, the tuner prints.
#pragma once

#include "candidate.h"
#include "machine.h"
#include "shape.h"

namespace hattn::autotune {

// Seconds. lanes: float32 elements of a vector of the target.
double predicted_seconds(const Candidate &candidate, const Shape &shape, const Machine &machine, int lanes);

}  // namespace hattn::autotune
