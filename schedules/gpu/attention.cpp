#include "attention.h"

#include <algorithm>
#include <numeric>

#include "runtime/device/unit_record.h"
#include "schedules/stored.h"

namespace hattn::schedules::gpu {

using namespace Halide;
using generators::AttentionStages;
using generators::kSliceVector;

namespace {

// Shared memory has 32 banks of 4 bytes, and a thread loads four neighbouring elements of a row at once. Threads that
// do so of neighbouring rows find them in different banks where rows are so much longer than a multiple of 32.
constexpr int kRowPadding = kSliceVector;

constexpr int kWarp = 32;          // threads
constexpr int kLoadsAtOnce = 8;    // of 16 bytes, by a thread
constexpr int kQueriesAtOnce = 4;  // elements of each of its rows

// Threads of a row that are neighbours: half a warp, which shared memory serves at once, has two rows. What it reads of
// either side is then 128 bytes at most.
constexpr int kNeighbours = 8;
constexpr int kPair = 2;  // lanes

int threads_of(const Tile &tile) {
    return tile.slices * tile.rows / tile.thread_rows;
}

constexpr int kTurningLanes = 2;  // of rows that are turned into columns: neighbours that read 32 bytes of one

// Parts of each row, which are for threads of their own.
int turning_parts(const Tile &tile) {
    return threads_of(tile) / (kTurningLanes * tile.keys);
}

// Loop variables of a work group: x and part count the threads of a row, y those of the rows.
struct Threads {
    Var block{"block"}, x{"x"}, y{"y"}, part{"part"}, in_x{"in_x"}, in_y{"in_y"};
};

class Schedule {
public:
    Schedule(AttentionStages &stages, const Tile &tile)
        : s(stages), tile_(tile), in_columns_(slice_keys(tile) > 1), chunk_loop_(stages.state, stages.over_chunks.x) {}

    void apply() {
        output();
        state();
        scores();
        softmax();
        values();
    }

private:
    // Of rows or keys that are dealt in turn, so many at a time, which are loaded at once.
    template<typename Stage>
    Stage deal(Stage stage, const Var &all, const Var &of_thread, const Var &thread, int threads) const {
        Var fours("fours"), in_four("in_four");
        return !in_columns_ ? stage.split(all, of_thread, thread, threads)
                            : stage.split(all, fours, thread, threads * kSliceVector)
                                  .split(thread, thread, in_four, kSliceVector)
                                  .fuse(in_four, fours, of_thread);
    }

    template<typename Stage>
    Stage deal_rows(Stage stage) const {
        return deal(stage, s.r, t.in_y, t.y, tile_.rows / tile_.thread_rows);
    }

    template<typename Stage>
    Stage deal_keys(Stage stage) const {
        return share(deal(deal_rows(stage), s.k, t.in_x, t.x, tile_.slices), t.x);
    }

    // Shared memory serves two quarters of a warp at once where neighbouring lanes read the same 16 bytes: two lanes
    // are neighbours in the rows, and such pairs are in the columns.
    template<typename Stage>
    void over_threads(Stage stage) const {
        if (in_columns_) {
            Var lane("lane");
            stage.split(t.y, t.y, lane, kPair).fuse(lane, t.x, t.x);
        }
        stage.gpu_threads(t.x, t.y, t.part);
    }

    template<typename Stage>
    Stage number_threads(Stage stage, const Var &number, TailStrategy tail = TailStrategy::Auto) const {
        const int pairs = in_columns_ ? kPair : 1;
        return stage.split(number, t.y, t.x, kNeighbours * pairs, tail)
            .split(t.y, t.part, t.y, tile_.rows / tile_.thread_rows / pairs, tail);
    }

    // A value per row and slice.
    template<typename Stage>
    void over_slices(Stage stage) const {
        over_threads(deal_rows(share(stage, s.slice)).reorder(t.in_y, t.x, t.y, t.part).unroll(t.in_y));
    }

    // Of a variable that counts slices.
    template<typename Stage>
    Stage share(Stage stage, const Var &slices) const {
        return stage.split(slices, t.part, t.x, kNeighbours);
    }

    template<typename Stage>
    void over_keys(Stage stage) const {
        over_threads(deal_keys(stage).reorder(t.in_y, t.in_x, t.x, t.y, t.part).unroll(t.in_x).unroll(t.in_y));
    }

    // Rows of a chunk, from memory to shared memory, where they are blocks of four elements: neighbouring threads read
    // neighbouring blocks, each of rows that follow each other.
    void load_blocks(Stage stage, const Var &row) const {
        Var turn("turn"), lane("lane"), element("block_element"), part("rows_part"), in_part("in_part"),
            thread("thread");
        const int blocks = tile_.head / kSliceVector, lanes = std::min(blocks & -blocks, kWarp);
        const int rows = std::max(1, tile_.keys * lanes / threads_of(tile_));  // of a thread
        number_threads(stage.split(s.d, turn, element, kSliceVector)
                           .split(turn, turn, lane, lanes)
                           .split(row, part, in_part, rows)
                           .fuse(lane, part, thread),
                       thread)
            .reorder(element, turn, in_part, t.x, t.y, t.part)
            .vectorize(element)
            .unroll(turn)
            .unroll(in_part, std::min(rows, kLoadsAtOnce))
            .never_partition_all()
            .gpu_threads(t.x, t.y, t.part);
    }

    // The same into columns: half a warp stores elements of neighbouring rows side by side.
    void turn_blocks(Stage stage, const Var &row) const {
        Var turn("turn"), lane("lane"), element("block_element"), part("rows_part"), in_part("in_part"),
            thread("thread");
        const int parts = turning_parts(tile_), turns = tile_.head / (kSliceVector * kTurningLanes * parts);
        number_threads(stage.split(s.d, turn, element, kSliceVector)
                           .split(turn, turn, lane, kTurningLanes)
                           .split(turn, turn, part, parts)
                           .fuse(lane, row, in_part)
                           .fuse(in_part, part, thread),
                       thread)
            .reorder(element, turn, t.x, t.y, t.part)
            .vectorize(element)
            .unroll(turn, turns <= kLoadsAtOnce ? turns : std::gcd(turns, kLoadsAtOnce))
            .never_partition_all()
            .gpu_threads(t.x, t.y, t.part);
    }

    // The same of rows as they come, and of those of the tile: so many elements at a time of several rows.
    void load_elements(Stage stage, const Var &row, int elements = 1) const {
        over_threads(stage.split(s.d, t.in_x, t.x, tile_.slices)
                         .split(t.x, t.part, t.x, kNeighbours)
                         .split(row, t.in_y, t.y, tile_.rows / tile_.thread_rows, TailStrategy::GuardWithIf)
                         .reorder(t.in_y, t.in_x, t.x, t.y, t.part)
                         .unroll(t.in_y)
                         .unroll(t.in_x, elements)
                         .never_partition_all());
    }

    // Rows of a chunk, of any type.
    void load_rows(Func f, const Var &row, const Param<int> &type, bool in_columns) const {
        f.compute_at(chunk_loop_).bound(s.d, 0, tile_.head).bound_extent(s.c, 1);
        Stage floats = f.specialize(type == static_cast<int>(HATTN_FLOAT32));
        for (const Expr &layout : {s.row_layout == kRowsSideBySide, s.row_layout >= kRowsAligned}) {
            Stage blocks = floats.specialize(layout);
            in_columns ? turn_blocks(blocks, row) : load_blocks(blocks, row);
        }
        load_elements(floats, row);
        load_elements(f, row);
        specialize_for_storage(f, type);
    }

    void output() {
        // There is one `heads` of d, but only the kernel's launch tells, so that loops inside it have fixed extents.
        Var heads("heads"), turn("turn"), dealt("dealt"), vector("vector");
        s.output.split(s.r, t.block, s.r, tile_.rows, TailStrategy::GuardWithIf)
            .split(s.d, heads, s.d, tile_.head, TailStrategy::GuardWithIf);
        over_threads(deal_rows(s.output)
                         .split(s.d, turn, dealt, kSliceVector * tile_.slices)
                         .split(dealt, t.x, vector, kSliceVector)
                         .split(t.x, t.part, t.x, kNeighbours)
                         .reorder(vector, turn, t.in_y, heads, t.x, t.y, t.part, t.block)
                         .unroll(vector)
                         .unroll(turn)
                         .unroll(t.in_y)
                         .gpu_blocks(t.block));
        s.query_tile.bound(s.d, 0, tile_.head).bound_extent(s.r, tile_.rows).compute_at(s.output, t.block);
        in_columns_ ? s.query_tile.bound_storage(s.r, tile_.rows + kRowPadding)
                    : s.query_tile.reorder_storage(s.d, s.r).bound_storage(s.d, tile_.head + kRowPadding);
        load_elements(s.query_tile, s.r, std::gcd(tile_.head / tile_.slices, kQueriesAtOnce));
        specialize_for_floats(s.query_tile, s.query_type);
    }

    void state() {
        for (Func f : {s.state, s.slice_total, s.row_normaliser}) {
            f.compute_at(s.output, t.block).bound_extent(s.r, tile_.rows).bound(s.slice, 0, tile_.slices);
            over_slices(f);
        }
        s.slice_total.reorder_storage(s.slice, s.r);
        over_threads(deal_rows(share(s.state.update(), s.slice))
                         .reorder(t.in_y, t.x, t.y, t.part, s.over_chunks)
                         .unroll(t.in_y));
        for (Func f : {s.state, s.row_normaliser, s.state_before, s.slice_max, s.row_max, s.rescale, s.slice_sum, s.dot,
                       s.logits, s.weights, s.chunk_output}) {
            f.store_in(MemoryType::Register);
        }
    }

    void scores() {
        s.key_rows.bound(s.k, 0, tile_.keys);
        in_columns_ ? s.key_rows.reorder_storage(s.k, s.d, s.c).bound_storage(s.k, tile_.keys + kRowPadding)
                    : s.key_rows.bound_storage(s.d, tile_.head + kRowPadding);
        load_rows(s.key_rows, s.k, s.key_type, in_columns_);
        over_keys(s.dot);
        over_keys(s.logits);
        over_keys(s.logits.update());
        RVar block("dim_block"), in_block("in_dim_block");
        over_threads(deal_keys(s.dot.update())
                         .split(s.over_dim.x, block, in_block, tile_.head_unroll > 0 ? tile_.head_unroll : tile_.unroll)
                         .reorder(t.in_x, t.in_y, in_block, block, t.x, t.y, t.part)
                         .unroll(t.in_x)
                         .unroll(t.in_y)
                         .unroll(in_block));
    }

    // Maxima of a thread's keys, then of a row, as each of its threads knows it.
    void softmax() {
        for (Func f : {s.slice_max, s.slice_sum}) {
            over_slices(f);
            over_threads(deal_rows(share(f.update(), s.slice))
                             .reorder(s.over_slice.x, t.in_y, t.x, t.y, t.part)
                             .unroll(s.over_slice.x)
                             .unroll(t.in_y));
        }
        for (Func f : {s.state_before, s.shared_max, s.row_max, s.rescale}) {
            over_slices(f);
        }
        in_columns_ ? s.shared_max.bound_storage(s.r, tile_.rows + kRowPadding)
                    : s.shared_max.reorder_storage(s.slice, s.r, s.c);
        for (Func f : {s.state_before, s.slice_max, s.shared_max, s.row_max, s.rescale, s.slice_sum, s.chunk_output}) {
            f.bound(s.slice, 0, tile_.slices);
        }
        for (Func f : {s.weights, s.row_weights}) {
            over_keys(f);
        }
        in_columns_ ? s.row_weights.reorder_storage(s.r, s.k, s.c).bound_storage(s.r, tile_.rows + kRowPadding)
                    : s.row_weights.bound_storage(s.k, tile_.keys + kNeighbours);
        for (Func f : {s.dot, s.logits, s.weights, s.row_weights}) {
            f.bound(s.k, 0, tile_.keys);
        }
        for (Func f : {s.dot, s.chunk_output, s.logits, s.state_before, s.slice_max, s.shared_max, s.row_max, s.weights,
                       s.row_weights, s.rescale, s.slice_sum}) {
            f.compute_at(chunk_loop_).bound_extent(s.r, tile_.rows).bound_extent(s.c, 1);
        }
    }

    void values() {
        Var row("row_of_chunk");
        s.chunk_value.fuse(s.slot, s.granule, row).bound_extent(s.granule, tile_.keys / generators::kGranuleKeys);
        load_rows(s.chunk_value, row, s.value_type, false);
        over_threads(deal_rows(share(s.chunk_output, s.slice))
                         .reorder(s.element, t.in_y, t.x, t.y, t.part)
                         .unroll(s.element)
                         .unroll(t.in_y));
        over_threads(deal_rows(share(s.chunk_output.update(), s.slice))
                         .reorder(s.element, t.in_y, s.over_keys.x, s.over_keys.y, t.x, t.y, t.part)
                         .unroll(s.element)
                         .unroll(t.in_y)
                         .unroll(s.over_keys.x, tile_.unroll));
        if (s.hides_keys) {
            s.key_seen.compute_at(chunk_loop_).bound(s.k, 0, tile_.keys);
            for (Stage stage : {Stage(s.key_seen), s.key_seen.update()}) {
                number_threads(stage, s.k, TailStrategy::GuardWithIf).gpu_threads(t.x, t.y, t.part);
            }
        }
    }

    AttentionStages &s;
    const Tile tile_;
    const bool in_columns_;  // queries, keys and weights, whose rows a thread then has side by side
    const LoopLevel chunk_loop_;
    const Threads t;
};

}  // namespace

int slice_keys(const Tile &tile) {
    const int parts = turning_parts(tile);
    const bool in_columns = tile.thread_rows % kSliceVector == 0 && tile.rows % (kPair * tile.thread_rows) == 0 &&
                            tile.keys % (kSliceVector * tile.slices) == 0 &&
                            parts * kTurningLanes * tile.keys == threads_of(tile) &&
                            tile.head % (kSliceVector * kTurningLanes * parts) == 0;
    return in_columns ? kSliceVector : 1;
}

void schedule_attention(AttentionStages &stages, const Tile &tile) {
    Schedule(stages, tile).apply();
}

}  // namespace hattn::schedules::gpu
