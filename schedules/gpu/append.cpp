#include "append.h"

#include "schedules/stored.h"

namespace hattn::schedules::gpu {

using namespace Halide;
using generators::AppendStages;
using generators::BlockScales;
using generators::Quantize;

namespace {

// Neighbouring threads write neighbouring elements. Returns the loop of a thread.
LoopLevel deal(Func &output, const Var &along, const Var &i, const Tile &tile) {
    Var tile_rows("tile_rows"), turn("turn"), x("x");
    output.split(i, tile_rows, i, tile.rows, TailStrategy::GuardWithIf)
        .split(along, turn, x, tile.slices, TailStrategy::GuardWithIf)
        .reorder(turn, x, i, tile_rows)
        .gpu_blocks(tile_rows)
        .gpu_threads(x, i);
    return {output, turn};
}

}  // namespace

void schedule_append(AppendStages &s, const Tile &tile) {
    const LoopLevel thread = deal(s.output, s.d, s.i, tile);
    for (Func f : {s.element, s.partner}) {
        specialize_for_floats(f.compute_at(thread), s.type);
    }
}

void schedule_block_scales(BlockScales &s, const Tile &tile) {
    s.largest.compute_at(deal(s.output, s.block, s.i, tile));
}

void schedule_quantize(Quantize &s, const Tile &tile) {
    deal(s.output, s.byte, s.i, tile);
}

}  // namespace hattn::schedules::gpu
