#include "stored.h"

#include "generators/stored_side.h"

namespace hattn::schedules {

using namespace Halide;

namespace {

// The last type is what remains.
template<size_t N>
void specialize(Stage stage, const Param<int> &type, const hattn_dtype (&types)[N]) {
    for (size_t i = 0; i + 1 < N; ++i) {
        stage.specialize(type == static_cast<int>(types[i]));
    }
}

}  // namespace

void specialize_for_storage(Stage stage, const Param<int> &type) {
    specialize(std::move(stage), type, generators::kStorageTypes);
}

void specialize_for_floats(Stage stage, const Param<int> &type) {
    specialize(std::move(stage), type, generators::kFloatTypes);
}

void schedule_stored(Func f, const Var &d, const Param<int> &type, LoopLevel level, int lanes) {
    f.compute_at(std::move(level)).vectorize(d, lanes, TailStrategy::RoundUp).partition(d, Partition::Always);
    specialize_for_storage(f, type);
}

}  // namespace hattn::schedules
