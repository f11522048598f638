// How a candidate cuts a problem up, for the models of its cost.
#pragma once

#include "candidate.h"
#include "shape.h"

namespace hattn::autotune {

// Rows are those of one call of a kernel.
struct Cut {
    double tiles;   // of the whole problem
    double rows;    // of a tile, filled or not
    double passes;  // over the keys of a kv head
    double splits;  // of a tile's keys
    double keys;    // a tile computes with
};
Cut cut_of(const Candidate &candidate, const Shape &shape);

// Keys that a tile of so many positions sees on average.
double mean_keys(const Shape &shape, double positions);

double ceil_div(double a, double b);

}  // namespace hattn::autotune
