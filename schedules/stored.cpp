#include "stored.h"

#include <iterator>

#include "generators/stored_side.h"

namespace hattn::schedules {

using namespace Halide;

void specialize_for_storage(Stage stage, const Param<int> &type) {
    // The last type is what remains.
    for (size_t i = 0; i + 1 < std::size(generators::kStorageTypes); ++i) {
        stage.specialize(type == static_cast<int>(generators::kStorageTypes[i]));
    }
}

void schedule_stored(Func f, const Var &d, const Param<int> &type, LoopLevel level, int lanes) {
    f.compute_at(std::move(level)).vectorize(d, lanes, TailStrategy::RoundUp).partition(d, Partition::Always);
    specialize_for_storage(f, type);
}

}  // namespace hattn::schedules
