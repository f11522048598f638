#include "attention.h"

#include <algorithm>

#include "runtime/device/unit_record.h"
#include "warp_matrix.h"
#include "warpgroup_layout.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using generators::AttentionStages;
using generators::kAlignedElements;
using generators::kFragmentColumns;
using generators::kFragmentGroups;
using generators::kFragmentRows;
using generators::kFragmentSlices;
using generators::kFragmentVector;
using gpu::Tile;

namespace {

constexpr int kMatrixDepth = 16;
constexpr int kLoadsAtOnce = 4;  // of 16 bytes, by a thread

// Shared memory has 32 banks of 4 bytes. The eight rows that a warp reads at once, a pair of elements in each thread,
// lie in different banks where rows are so many elements longer than a multiple of 64. 16 bytes stay aligned.
constexpr int kRowPadding = 8;

// Of rows of keys and values, of which blocks change places (exchanged_blocks.h): none, or one sector, which takes
// fewer addresses. Tiles with two row tiles of a warp lack registers for more.
int key_padding(const Tile &tile) {
    if (tile.warpgroups) {
        return whole_swizzled_rows(tile.head) - tile.head;
    }
    return tile.thread_rows > 2 || tile.head % 64 != 0 ? 2 * kRowPadding : 0;
}

// Loop variables. matrix: of those that a warp has, one below the other. part: of the columns, for warps of their own.
// x: threads of a warp where they do not hold fragments, y: warps of all parts.
struct Loops {
    Var block{"block"}, warp{"warp"}, matrix{"matrix"}, in_row{"in_row"}, half{kMatrixHalf};
    Var group{"group"};
    Var part{"part"}, in_part{"in_part"};
    Var tile{"tile"}, in_tile{"in_tile"}, thread{"thread"}, column{kMatrixColumn}, lane{"lane"};
    Var x{"x"}, y{"y"}, in_x{"in_x"}, in_y{"in_y"}, element{"block_element"};
};

// That share the rows.
int warps_of(const Tile &tile) {
    return tile.rows / (tile.thread_rows * kFragmentGroups);
}

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
        chunk();
        if (s.hides_keys) {
            seen_keys();
        }
    }

private:
    // Rows of the tile over warps and groups of threads.
    template<typename Stage>
    Stage deal_rows(Stage stage) const {
        return stage.split(s.r, v.matrix, v.warp, kFragmentRows * warps())
            .split(v.warp, v.warp, v.in_row, kFragmentRows)
            .split(v.in_row, v.half, v.group, kFragmentGroups);
    }

    template<typename Stage>
    Stage over_threads(Stage stage) const {
        return stage.fuse(v.thread, v.group, v.lane).gpu_threads(v.lane, v.warp, v.part);
    }

    // A value per row and slice.
    template<typename Stage>
    Stage over_slices(Stage stage) const {
        return over_threads(deal_rows(stage).split(s.slice, v.part, v.thread, kFragmentSlices));
    }

    // The rows of a thread.
    template<typename Stage>
    void each_row(Stage stage) const {
        stage.reorder(v.half, v.matrix, v.lane, v.warp, v.part).unroll(v.half).unroll(v.matrix);
    }

    template<typename Stage>
    Stage deal_columns(Stage stage, const Var &columns, int count) const {
        return stage.split(columns, v.part, v.in_part, count / parts())
            .split(v.in_part, v.tile, v.in_tile, kFragmentColumns)
            .split(v.in_tile, v.thread, v.column, kFragmentVector);
    }

    // A value per row and column, of so many.
    template<typename Stage>
    Stage over_columns(Stage stage, const Var &columns, int count) const {
        return over_threads(deal_columns(deal_rows(stage), columns, count));
    }

    // The values of a thread.
    template<typename Stage>
    Stage each_value(Stage stage) const {
        return stage.reorder(v.column, v.half, v.tile, v.matrix, v.lane, v.warp, v.part)
            .unroll(v.half)
            .unroll(v.tile)
            .unroll(v.matrix);
    }

    template<typename Stage>
    void values_in_fragments(Stage stage, const Var &columns, int count) const {
        each_value(over_columns(stage, columns, count)).unroll(v.column);
    }

    // A product of matrices, a 16 x 8 x 16 one for each step and tile.
    template<typename Stage>
    void multiply(Stage stage, const RVar &sum) const {
        RVar step("step"), in_step(kMatrixSum);
        stage.split(sum, step, in_step, kMatrixDepth)
            .reorder(v.column, v.half, in_step, v.tile, v.matrix, step, v.lane, v.warp, v.part)
            .unroll(v.tile)
            .unroll(v.matrix)
            .unroll(step);
    }

    // From memory to shared memory: the threads of a warp read neighbouring elements of a row, or blocks of elements,
    // which wide_rows.h makes one load each.
    Func &load_rows(Func &f, const Var &row, int row_count) const {
        // All threads take part: of a row that is no power of two long, as many blocks at a time as are one.
        const int blocks = tile_.head / kAlignedElements & -(tile_.head / kAlignedElements), rows = kWarp / blocks;
        const int rows_at_once = warps() * parts() * rows, turns = (row_count + rows_at_once - 1) / rows_at_once;
        // No more than there are: what Halide rounds up has to be within bounds, and it takes conditions for false
        // under which it is not.
        const int loads = blocks == tile_.head / kAlignedElements ? std::min(kLoadsAtOnce, turns) : 1;
        f.bound(s.d, 0, tile_.head);
        for (const Expr &layout : {s.row_layout == kRowsSideBySide, s.row_layout >= kRowsAligned}) {
            f.specialize(layout)
                .split(s.d, v.in_row, v.element, kAlignedElements)
                .split(v.in_row, v.in_row, v.x, blocks)
                .split(row, v.in_y, v.y, rows_at_once,
                       row_count % rows_at_once == 0 ? TailStrategy::Auto : TailStrategy::GuardWithIf)
                .split(v.y, v.y, v.in_x, rows)
                .fuse(v.x, v.in_x, v.x)
                .split(v.y, v.part, v.warp, warps())
                .reorder(v.element, v.in_row, v.in_y, v.x, v.warp, v.part)
                .vectorize(v.element)
                .unroll(v.in_row)
                .unroll(v.in_y, loads)
                .never_partition_all()
                .gpu_threads(v.x, v.warp, v.part);
        }
        return f.split(s.d, v.in_x, v.x, kWarp)
            .split(row, v.in_y, v.y, warps() * parts())
            .split(v.y, v.part, v.warp, warps())
            .reorder(v.in_x, v.in_y, v.x, v.warp, v.part)
            .never_partition_all()
            .gpu_threads(v.x, v.warp, v.part);
    }

    int warps() const {
        return warps_of(tile_);
    }

    int parts() const {
        return tile_.slices / kFragmentSlices;
    }

    void output() {
        // There is one `heads` of d, but only the kernel's launch tells, so that loops inside it have fixed extents.
        Var heads("heads"), turn("turn");
        s.output.split(s.r, v.block, s.r, tile_.rows, TailStrategy::GuardWithIf)
            .split(s.d, heads, s.d, tile_.head, TailStrategy::GuardWithIf);
        s.output.split(s.r, turn, s.r, kFragmentRows * warps())
            .split(s.d, v.in_x, v.x, kWarp)
            .split(s.r, v.in_y, v.y, warps() * parts())
            .split(v.y, v.part, v.warp, warps())
            .reorder(v.in_x, v.in_y, heads, v.x, v.warp, v.part, turn, v.block)
            .unroll(turn)
            .gpu_threads(v.x, v.warp, v.part)
            .gpu_blocks(v.block);
        // Through shared memory, those of one matrix of every warp at a time: a thread that holds a fragment has two
        // elements side by side.
        values_in_fragments(s.row_output.compute_at(s.output, turn)
                                .bound_extent(s.r, kFragmentRows * warps())
                                .bound(s.d, 0, tile_.head)
                                .bound_storage(s.d, tile_.head + kFragmentColumns),
                            s.d, tile_.head);
        load_rows(s.query_tile, s.r, tile_.rows)
            .compute_at(s.output, v.block)
            .bound_extent(s.r, tile_.rows)
            .reorder_storage(s.d, s.r)
            .bound_storage(s.d, tile_.head + (tile_.warpgroups ? key_padding(tile_) : kRowPadding));
    }

    void state() {
        s.state.store_in(MemoryType::Register);
        s.row_normaliser.store_in(MemoryType::Register);
        for (Func f : {s.state, s.slice_total, s.row_normaliser, s.row_lse}) {
            f.compute_at(s.output, v.block).bound_extent(s.r, tile_.rows).bound(s.slice, 0, tile_.slices);
            each_row(over_slices(f));
        }
        over_slices(s.state.update())
            .reorder(v.half, v.matrix, v.lane, v.warp, v.part, s.over_chunks)
            .unroll(v.half)
            .unroll(v.matrix);
    }

    // What a chunk computes: a value for each row and slice, or for each row and key.
    void chunk() {
        std::vector<Func> of_slices = {s.slice_max, s.state_before, s.own_max,     s.row_max,     s.row_reference,
                                       s.rescale,   s.slice_sum,    s.kept_output, s.chunk_output};
        if (s.pair_max.defined()) {
            of_slices.push_back(s.pair_max);
        }
        for (Func f : of_slices) {
            in_chunk(f).bound(s.slice, 0, tile_.slices);
        }
        for (Func f : {s.dot, s.logits, s.weights, s.weight_bits}) {
            in_chunk(f).bound(s.k, 0, tile_.keys);
        }
        // Warps with parts of the keys exchange them through shared memory, and weights with those that multiply a part
        // of the values.
        if (parts() > 1) {
            s.slice_max.store_in(MemoryType::Auto);
            s.weight_bits.store_in(MemoryType::Auto).bound_storage(s.k, tile_.keys + kRowPadding);
        }
    }

    Func &in_chunk(Func &f) const {
        return f.compute_at(chunk_loop_)
            .bound_extent(s.r, tile_.rows)
            .bound_extent(s.c, 1)
            .store_in(MemoryType::Register);
    }

    void load_chunk(Func &f) const {
        load_rows(f, s.k, tile_.keys).compute_at(chunk_loop_).bound(s.k, 0, tile_.keys).bound_extent(s.c, 1);
        f.bound_storage(s.d, tile_.head + key_padding(tile_));
    }

    void scores() {
        load_chunk(s.key_rows);
        values_in_fragments(s.dot, s.k, tile_.keys);
        multiply(over_columns(s.dot.update(), s.k, tile_.keys), s.over_dim.x);
        if (s.dot.num_update_definitions() > 1) {
            values_in_fragments(s.dot.update(1), s.k, tile_.keys);
        }
        values_in_fragments(s.logits, s.k, tile_.keys);
        values_in_fragments(s.logits.update(), s.k, tile_.keys);
    }

    void softmax() {
        for (Func f : {s.slice_max, s.slice_sum}) {
            each_row(over_slices(f));
            over_slices(f.update())
                .reorder(s.over_slice.x, s.over_slice.y, v.half, v.matrix, v.lane, v.warp, v.part)
                .unroll(s.over_slice.x)
                .unroll(s.over_slice.y)
                .unroll(v.half)
                .unroll(v.matrix);
        }
        for (Func f : {s.state_before, s.own_max, s.row_max, s.row_reference, s.rescale}) {
            each_row(over_slices(f));
        }
        if (s.pair_max.defined()) {
            each_row(over_slices(s.pair_max));
        }
        values_in_fragments(s.weights, s.k, tile_.keys);
        // Two in a register, by one instruction. That of float16 numbers LLVM finds by itself where they go to shared
        // memory; given vectors, LLVM 21 stores the lower halves of float32 numbers there.
        const bool by_itself = parts() > 1 && s.matrix_type == HATTN_FLOAT16;
        auto rounded = each_value(over_columns(s.weight_bits, s.k, tile_.keys));
        by_itself ? rounded.unroll(v.column) : rounded.vectorize(v.column);
    }

    // Of keys that hooks hide, a thread each in the end.
    void seen_keys() {
        s.group_weight.compute_at(chunk_loop_)
            .bound(s.k, 0, tile_.keys)
            .bound(s.group, 0, tile_.rows / tile_.thread_rows)
            .bound_extent(s.c, 1)
            .bound_storage(s.k, tile_.keys + kRowPadding)
            .split(s.group, v.warp, v.group, kFragmentGroups);
        over_threads(deal_columns(s.group_weight, s.k, tile_.keys))
            .reorder(v.column, v.tile, v.lane, v.warp, v.part)
            .unroll(v.column)
            .unroll(v.tile);
        s.key_seen.compute_at(chunk_loop_).bound(s.k, 0, tile_.keys).bound_extent(s.c, 1);
        for (Stage stage : {Stage(s.key_seen), s.key_seen.update()}) {
            // By no more threads than there are.
            stage.split(s.k, v.y, v.x, kWarp)
                .split(v.y, v.in_y, v.y, std::min(warps() * parts(), tile_.keys / kWarp))
                .split(v.y, v.part, v.warp, std::min(warps(), tile_.keys / kWarp))
                .reorder(v.in_y, v.x, v.warp, v.part)
                .gpu_threads(v.x, v.warp, v.part);
        }
    }

    void values() {
        load_chunk(s.value_rows);
        const auto over_elements = [&](auto stage) {
            return over_slices(stage.split(s.element, v.tile, v.column, kFragmentVector));
        };
        each_value(over_elements(s.kept_output)).unroll(v.column);
        each_value(over_elements(s.kept_output.update())).unroll(v.column);
        each_value(over_elements(s.chunk_output)).unroll(v.column);
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

Tiles early_tiles(const AttentionStages &stages, const Tile &tile) {
    Tiles tiles{stages.key_rows.name(), stages.hides_keys ? "" : stages.value_rows.name()};
    if (stages.pair_max.defined()) {
        tiles.exchanged = {stages.slice_max.name(), stages.pair_max.name()};
        tiles.stored = {stages.row_output.name(), kFragmentRows * warps_of(tile), warps_of(tile), tile.head,
                        stages.row_layout >= kRowsAligned};
        tiles.rare = stages.kept_output.name();
        if (!stages.hides_keys) {
            tiles.first = stages.query_tile.name();
            // With two row tiles of a warp, and so two products for each load: else loads are in copies' way. For heads
            // of 96 ptxas spills.
            const bool spreads = tile.warpgroups || (tile.thread_rows > 2 && (tile.head & (tile.head - 1)) == 0);
            tiles.spread_before = tile.warpgroups ? stages.weight_bits.name() : spreads ? stages.weights.name() : "";
        }
    }
    tiles.rows = {{stages.key_rows.name(), tile.keys}, {stages.value_rows.name(), tile.keys}};
    tiles.row_bytes = (tile.head + key_padding(tile)) * 2;
    tiles.padding_bytes = key_padding(tile) * 2;  // behind the last row, where another stage may begin
    if (tile.warpgroups) {
        tiles.rows[stages.query_tile.name()] = tile.rows;
        tiles.padding_bytes = 0;
        tiles.buffers = tile.buffers;
        tiles.warpgroups = WarpgroupMatrices{tiles.row_bytes / 2, tile.rows, warps_of(tile) * kWarp};
    }
    return tiles;
}

}  // namespace hattn::schedules::cuda
