// Stages that bring stored keys and values into float32.
#pragma once

#include "Halide.h"

namespace hattn::schedules {

// Computes f at a level, vectors along d, in a loop of its own for every type that `type` may say. Nothing else may
// decide which type is read: f selects from all of them, and only a specialised loop reads nothing but its own.
void schedule_stored(Halide::Func f, const Halide::Var &d, const Halide::Param<int> &type, Halide::LoopLevel level,
                     int lanes);

}  // namespace hattn::schedules
