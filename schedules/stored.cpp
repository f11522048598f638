#include "stored.h"

#include <iterator>

#include "generators/stored_side.h"

namespace hattn::schedules {

using namespace Halide;

namespace {

void vectorize_rows(Stage stage, const Var &d, hattn_dtype type, int lanes) {
    if (type == HATTN_INT4) {
        // Two elements a byte: vectors of bytes, whose halves are interleaved when they are stored.
        Var byte("byte"), half("half");
        stage.split(d, byte, half, 2, TailStrategy::RoundUp)
            .vectorize(byte, lanes, TailStrategy::RoundUp)
            .unroll(half)
            .partition(byte, Partition::Always);
    } else {
        stage.vectorize(d, lanes, TailStrategy::RoundUp).partition(d, Partition::Always);
    }
}

}  // namespace

void schedule_stored(Func f, const Var &d, const Param<int> &type, LoopLevel level, int lanes) {
    f.compute_at(std::move(level));
    // The last type is what remains.
    for (size_t i = 0; i + 1 < std::size(generators::kStorageTypes); ++i) {
        const hattn_dtype one = generators::kStorageTypes[i];
        vectorize_rows(f.specialize(type == static_cast<int>(one)), d, one, lanes);
    }
    vectorize_rows(f, d, *std::rbegin(generators::kStorageTypes), lanes);
}

}  // namespace hattn::schedules
