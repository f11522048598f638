#include "append.h"

namespace hattn::schedules::gpu {

using namespace Halide;
using generators::AppendStages;

// Neighbouring threads move neighbouring elements.
void schedule_append(AppendStages &s, const Tile &tile) {
    Var block("block"), turn("turn"), x("x");
    s.output.split(s.i, block, s.i, tile.rows, TailStrategy::GuardWithIf)
        .split(s.d, turn, x, tile.slices, TailStrategy::GuardWithIf)
        .reorder(turn, x, s.i, block)
        .gpu_blocks(block)
        .gpu_threads(x, s.i);
}

}  // namespace hattn::schedules::gpu
