// Where stored keys and values are brought into float32.
#pragma once

#include "Halide.h"

namespace hattn::schedules {

// Gives a stage a version of its own for every type that `type` may say. Nothing else may decide which type is read:
// stored elements are selected from all types, and only a specialised stage reads nothing but its own.
void specialize_for_storage(Halide::Stage stage, const Halide::Param<int> &type);

// The same for types that are not quantised, such as those of queries.
void specialize_for_floats(Halide::Stage stage, const Halide::Param<int> &type);

// Computes rows in float32 at a level, vectors along d, for all that read them there.
void schedule_stored(Halide::Func f, const Halide::Var &d, const Halide::Param<int> &type, Halide::LoopLevel level,
                     int lanes);

}  // namespace hattn::schedules
