#include "attention.h"

#include "warp_matrix.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using generators::AttentionStages;
using generators::kFragmentColumns;
using generators::kFragmentVector;
using gpu::Tile;

namespace {

constexpr int kWarp = 32;  // threads
constexpr int kMatrixRows = 16, kGroups = 8, kMatrixDepth = 16;

// Shared memory has 32 banks of 4 bytes. The eight rows that a warp reads at once, a pair of elements in each thread,
// lie in different banks where rows are so many elements longer than a multiple of 64. 16 bytes stay aligned.
constexpr int kRowPadding = 8;

// Loop variables. x: threads of a warp where they do not hold fragments.
struct Loops {
    Var block{"block"}, warp{"warp"}, in_row{"in_row"}, half{kMatrixHalf}, group{"group"};
    Var tile{"tile"}, in_tile{"in_tile"}, thread{"thread"}, column{kMatrixColumn}, lane{"lane"};
    Var x{"x"}, in_x{"in_x"}, in_y{"in_y"};
};

class Schedule {
public:
    Schedule(AttentionStages &stages, const Tile &tile)
        : s(stages), tile_(tile), chunk_loop_(stages.state, stages.over_chunks.x) {}

    void apply() {
        output();
        state();
        scores();
        softmax();
        values();
        for (Func f :
             {s.dot, s.logits, s.slice_max, s.row_max, s.weights, s.slice_sum, s.weight_bits, s.chunk_output}) {
            f.compute_at(chunk_loop_).bound_extent(s.r, tile_.rows).bound_extent(s.c, 1);
        }
        for (Func f : {s.dot, s.logits, s.weights, s.weight_bits}) {
            f.bound(s.k, 0, tile_.keys);
        }
        for (Func f : {s.slice_max, s.row_max, s.slice_sum, s.chunk_output}) {
            f.bound(s.slice, 0, generators::kFragmentSlices);
        }
        for (Func f : {s.dot, s.logits, s.row_max, s.weights, s.slice_sum, s.weight_bits, s.chunk_output}) {
            f.store_in(MemoryType::Register);
        }
    }

private:
    // Rows of the tile over warps and groups of threads.
    template<typename Stage>
    Stage deal_rows(Stage stage) const {
        return stage.split(s.r, v.warp, v.in_row, kMatrixRows).split(v.in_row, v.half, v.group, kGroups);
    }

    // A value per row and slice.
    template<typename Stage>
    Stage over_slices(Stage stage) const {
        return deal_rows(stage).fuse(s.slice, v.group, v.lane).gpu_threads(v.lane, v.warp);
    }

    // A value per row and column.
    template<typename Stage>
    Stage over_columns(Stage stage, const Var &columns) const {
        return deal_rows(stage)
            .split(columns, v.tile, v.in_tile, kFragmentColumns)
            .split(v.in_tile, v.thread, v.column, kFragmentVector)
            .fuse(v.thread, v.group, v.lane)
            .gpu_threads(v.lane, v.warp);
    }

    template<typename Stage>
    void values_in_fragments(Stage stage, const Var &columns) const {
        over_columns(stage, columns)
            .reorder(v.column, v.half, v.tile, v.lane, v.warp)
            .unroll(v.column)
            .unroll(v.half)
            .unroll(v.tile);
    }

    // A product of matrices, a 16 x 8 x 16 one for each step and tile.
    template<typename Stage>
    void multiply(Stage stage, const RVar &sum) const {
        RVar step("step"), in_step(kMatrixSum);
        stage.split(sum, step, in_step, kMatrixDepth)
            .reorder(v.column, v.half, in_step, v.tile, step, v.lane, v.warp)
            .unroll(v.tile)
            .unroll(step);
    }

    // From memory to shared memory: the threads of a warp read neighbouring elements of a row.
    Func &load_rows(Func &f, const Var &row) const {
        return f.bound(s.d, 0, tile_.head)
            .split(s.d, v.in_x, v.x, kWarp)
            .split(row, v.in_y, v.warp, warps())
            .reorder(v.in_x, v.in_y, v.x, v.warp)
            .unroll(v.in_x)
            .gpu_threads(v.x, v.warp);
    }

    int warps() const {
        return tile_.rows / kMatrixRows;
    }

    void output() {
        // There is one `heads` of d, but only the kernel's launch tells, so that loops inside it have fixed extents.
        Var heads("heads");
        s.output.split(s.r, v.block, s.r, tile_.rows, TailStrategy::GuardWithIf)
            .split(s.d, heads, s.d, tile_.head, TailStrategy::GuardWithIf);
        s.output.split(s.d, v.in_x, v.x, kWarp)
            .split(s.r, v.in_y, v.warp, warps())
            .reorder(v.in_x, v.in_y, heads, v.x, v.warp, v.block)
            .gpu_threads(v.x, v.warp)
            .gpu_blocks(v.block);
        // Through shared memory: a thread that holds a fragment has two elements side by side.
        values_in_fragments(s.row_output.compute_at(s.output, v.block)
                                .bound_extent(s.r, tile_.rows)
                                .bound(s.d, 0, tile_.head)
                                .bound_storage(s.d, tile_.head + kFragmentColumns),
                            s.d);
        load_rows(s.query_tile, s.r)
            .compute_at(s.output, v.block)
            .bound_extent(s.r, tile_.rows)
            .reorder_storage(s.d, s.r)
            .bound_storage(s.d, tile_.head + kRowPadding);
    }

    void state() {
        s.state.store_in(MemoryType::Register);
        s.row_normaliser.store_in(MemoryType::Register);
        for (Func f : {s.state, s.slice_total, s.row_normaliser, s.row_lse}) {
            f.compute_at(s.output, v.block)
                .bound_extent(s.r, tile_.rows)
                .bound(s.slice, 0, generators::kFragmentSlices);
            over_slices(f).reorder(v.half, v.lane, v.warp).unroll(v.half);
        }
        over_slices(s.state.update()).reorder(v.half, v.lane, v.warp, s.over_chunks).unroll(v.half);
    }

    void scores() {
        load_rows(s.key_rows, s.k)
            .compute_at(chunk_loop_)
            .bound(s.k, 0, tile_.keys)
            .bound_extent(s.c, 1)
            .bound_storage(s.d, tile_.head + kRowPadding);
        values_in_fragments(s.dot, s.k);
        multiply(over_columns(s.dot.update(), s.k), s.over_dim.x);
        values_in_fragments(s.logits, s.k);
    }

    void softmax() {
        for (Func f : {s.slice_max, s.slice_sum}) {
            over_slices(f).reorder(v.half, v.lane, v.warp).unroll(v.half);
            over_slices(f.update())
                .reorder(s.over_slice.x, s.over_slice.y, v.half, v.lane, v.warp)
                .unroll(s.over_slice.x)
                .unroll(s.over_slice.y)
                .unroll(v.half);
        }
        over_slices(s.row_max).reorder(v.half, v.lane, v.warp).unroll(v.half);
        values_in_fragments(s.weights, s.k);
        values_in_fragments(s.weight_bits, s.k);
    }

    void values() {
        load_rows(s.value_rows, s.k)
            .compute_at(chunk_loop_)
            .bound(s.k, 0, tile_.keys)
            .bound_extent(s.c, 1)
            .bound_storage(s.d, tile_.head + kRowPadding);
        const auto over_elements = [&](auto stage) {
            return over_slices(stage.split(s.element, v.tile, v.column, kFragmentVector));
        };
        over_elements(s.chunk_output)
            .reorder(v.column, v.half, v.tile, v.lane, v.warp)
            .unroll(v.column)
            .unroll(v.half)
            .unroll(v.tile);
        multiply(over_elements(s.chunk_output.update()), s.over_chunk_keys);
    }

    AttentionStages &s;
    const Tile tile_;
    const LoopLevel chunk_loop_;
    const Loops v;
};

}  // namespace

void schedule_matrix_attention(AttentionStages &stages, const Tile &tile) {
    Schedule(stages, tile).apply();
}

}  // namespace hattn::schedules::cuda
