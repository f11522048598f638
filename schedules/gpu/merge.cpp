#include "merge.h"

#include "schedules/gpu/tile.h"

namespace hattn::schedules::gpu {

using namespace Halide;
using generators::MergeStages;

namespace {

// A value of a row from all states: parts of it in a thread for each state of a block, then the whole.
void reduce_states(const MergeStages &s, Func &f, const LoopLevel &group) {
    Var lane("lane");
    Func part = f.update().rfactor(s.over_states.x, lane);
    part.compute_at(group).gpu_threads(lane);
    part.update().gpu_threads(lane);
    f.compute_at(group).bound(s.r, 0, 1).gpu_threads(s.r);
    f.update().gpu_threads(s.r).unroll(s.over_states.x);
}

}  // namespace

// A unit is one row. Each thread adds up one element over its share of the states, of which so many are on their way at
// once as a block has for it.
void schedule_merge(MergeStages &s, const Tile &tile) {
    Var block("block"), x("x"), share("share");
    RVar own("own"), of_share("of_share");
    s.output.bound(s.i, 0, 1)
        .bound(s.h, 0, 1)
        .split(s.d, block, x, tile.head, TailStrategy::GuardWithIf)
        .reorder(s.i, s.h, x, block)
        .gpu_blocks(block)
        .gpu_threads(x);
    const LoopLevel group(s.output, block);
    for (Func f : {s.maximum, s.total}) {
        reduce_states(s, f, group);
    }
    const int states = tile.keys / tile.slices;
    s.sum.update().split(s.over_states.x, of_share, own, states);
    Func part = s.sum.update().rfactor(of_share, share);
    part.compute_at(group).bound(s.d, 0, tile.head).bound(share, 0, tile.slices).gpu_threads(s.d, share);
    part.update().reorder(own, s.over_states.y, s.d, share).unroll(own).gpu_threads(s.d, share);
    for (Func f : {s.element, s.weights.in(part)}) {
        f.compute_at(part, s.over_states.y).bound_extent(s.n, states).unroll(s.n);
    }
    s.sum.compute_at(s.output, x);
    s.sum.update().unroll(of_share);
}

}  // namespace hattn::schedules::gpu
