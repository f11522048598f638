// Sums of small matrices in registers, as matrix_tiles.h wants them.
#pragma once

#include "generators/attention_stages.h"
#include "schedules/tile.h"
#include "tile_sums.h"

namespace hattn::schedules::x86 {

// Sums that `stored` brings into memory: `joined` is the innermost of the loops around it, which become as many
// registers. over: (element of a block, product of terms, block).
inline void schedule_sums(Halide::Func sums, const Halide::Func &stored, const Halide::Var &joined,
                          const Halide::Var &column, const Halide::Var &row, Halide::RDom over) {
    sums.compute_at(stored, joined).store_in(Halide::MemoryType::Stack).vectorize(column);
    sums.update().reorder(column, over.x, row, over.y, over.z).vectorize(column).unroll(over.y);
}

// The same of weights and values: columns are the lanes of a panel.
inline void schedule_panel_sums(const generators::AttentionStages &s, Halide::Func sums, const Halide::Func &stored,
                                const Halide::Var &joined, const Halide::Var &row, Halide::RDom over) {
    sums.bound_extent(s.lane, kSide).reorder_storage(s.lane, row, s.panel, s.c).reorder(s.lane, row, s.panel, s.c);
    schedule_sums(sums, stored, joined, s.lane, row, over);
}

// Registers of keys that are computed together. No more, so that keys in place are read in the order of memory.
inline constexpr int kJoinedKeys = 2;

// Scores of so many rows, computed at a loop within that over chunks. Returns the Func that stores them.
Halide::Func schedule_score_matrices(generators::AttentionStages &stages, const Halide::LoopLevel &loop,
                                     const Halide::LoopLevel &chunk_loop, int rows, const Tile &tile, int lanes);

}  // namespace hattn::schedules::x86
