#include "merge.h"

#include "schedules/gpu/tile.h"

namespace hattn::schedules::gpu {

using namespace Halide;
using generators::MergeStages;

void schedule_merge(MergeStages &s, const Tile &tile) {
    Var block("block"), x("x");
    s.output.split(s.d, block, x, tile.head, TailStrategy::GuardWithIf)
        .reorder(s.i, s.h, x, block)
        .gpu_blocks(block)
        .gpu_threads(x);
    for (Func f : {s.maximum, s.total, s.sum}) {
        f.compute_at(s.output, s.i);
    }
}

}  // namespace hattn::schedules::gpu
