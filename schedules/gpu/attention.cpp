#include "attention.h"

#include <algorithm>

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

constexpr int kWarp = 32;        // threads
constexpr int kLoadsAtOnce = 8;  // of 16 bytes, by a thread

// Threads of a row that are neighbours: half a warp, which shared memory serves at once, has two rows. What it reads of
// either side is then 128 bytes at most.
constexpr int kNeighbours = 8;

// Loop variables of a work group: x and part count the threads of a row, y those of the rows.
struct Threads {
    Var block{"block"}, x{"x"}, y{"y"}, part{"part"}, in_x{"in_x"}, in_y{"in_y"};
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
    }

private:
    // Rows of the tile are dealt to threads in turn.
    template<typename Stage>
    Stage deal_rows(Stage stage) const {
        return stage.split(s.r, t.in_y, t.y, tile_.rows / tile_.thread_rows);
    }

    // A value per row and slice.
    template<typename Stage>
    void over_slices(Stage stage) const {
        deal_rows(share(stage, s.slice)).reorder(t.in_y, t.x, t.y, t.part).unroll(t.in_y).gpu_threads(t.x, t.y, t.part);
    }

    // Of a variable that counts slices.
    template<typename Stage>
    Stage share(Stage stage, const Var &slices) const {
        return stage.split(slices, t.part, t.x, kNeighbours);
    }

    // A value per row and key.
    template<typename Stage>
    void over_keys(Stage stage) const {
        share(deal_rows(stage).split(s.k, t.in_x, t.x, tile_.slices), t.x)
            .reorder(t.in_y, t.in_x, t.x, t.y, t.part)
            .unroll(t.in_x)
            .unroll(t.in_y)
            .gpu_threads(t.x, t.y, t.part);
    }

    // Rows of a chunk, from memory to shared memory, where they are blocks of four elements: neighbouring threads read
    // neighbouring blocks, each of rows that follow each other.
    void load_blocks(Stage stage, const Var &row) const {
        Var turn("turn"), lane("lane"), element("block_element"), part("rows_part"), in_part("in_part"),
            thread("thread");
        const int blocks = tile_.head / kSliceVector, lanes = std::min(blocks & -blocks, kWarp);
        const int rows = std::max(1, tile_.keys * lanes / threads());  // of a thread
        stage.split(s.d, turn, element, kSliceVector)
            .split(turn, turn, lane, lanes)
            .split(row, part, in_part, rows)
            .fuse(lane, part, thread)
            .split(thread, t.y, t.x, kNeighbours)
            .split(t.y, t.part, t.y, tile_.rows / tile_.thread_rows)
            .reorder(element, turn, in_part, t.x, t.y, t.part)
            .vectorize(element)
            .unroll(turn)
            .unroll(in_part, std::min(rows, kLoadsAtOnce))
            .never_partition_all()
            .gpu_threads(t.x, t.y, t.part);
    }

    int threads() const {
        return tile_.slices * tile_.rows / tile_.thread_rows;
    }

    // The same of rows as they come, and of those of the tile: one element after the other, several rows at a time.
    void load_elements(Stage stage, const Var &row) const {
        stage.split(s.d, t.in_x, t.x, tile_.slices)
            .split(t.x, t.part, t.x, kNeighbours)
            .split(row, t.in_y, t.y, tile_.rows / tile_.thread_rows, TailStrategy::GuardWithIf)
            .reorder(t.in_y, t.in_x, t.x, t.y, t.part)
            .unroll(t.in_y)
            .never_partition_all()
            .gpu_threads(t.x, t.y, t.part);
    }

    // Rows of a chunk, of any type.
    void load_rows(Func f, const Var &row, const Param<int> &type) const {
        f.compute_at(chunk_loop_).bound(s.d, 0, tile_.head).bound_extent(s.c, 1);
        Stage floats = f.specialize(type == static_cast<int>(HATTN_FLOAT32));
        load_blocks(floats.specialize(s.row_layout >= kRowsAligned), row);
        load_elements(floats, row);
        load_elements(f, row);
        specialize_for_storage(f, type);
    }

    void output() {
        // There is one `heads` of d, but only the kernel's launch tells, so that loops inside it have fixed extents.
        Var heads("heads"), turn("turn"), dealt("dealt"), vector("vector");
        s.output.split(s.r, t.block, s.r, tile_.rows, TailStrategy::GuardWithIf)
            .split(s.r, t.in_y, t.y, tile_.rows / tile_.thread_rows)
            .split(s.d, heads, s.d, tile_.head, TailStrategy::GuardWithIf)
            .split(s.d, turn, dealt, kSliceVector * tile_.slices)
            .split(dealt, t.x, vector, kSliceVector)
            .split(t.x, t.part, t.x, kNeighbours)
            .reorder(vector, turn, t.in_y, heads, t.x, t.y, t.part, t.block)
            .unroll(vector)
            .unroll(turn)
            .unroll(t.in_y)
            .gpu_blocks(t.block)
            .gpu_threads(t.x, t.y, t.part);
        s.query_tile.bound(s.d, 0, tile_.head)
            .bound_extent(s.r, tile_.rows)
            .compute_at(s.output, t.block)
            .reorder_storage(s.d, s.r)
            .bound_storage(s.d, tile_.head + kRowPadding);
        load_elements(s.query_tile, s.r);
        specialize_for_queries(s.query_tile, s.query_type);
    }

    void state() {
        for (Func f : {s.state, s.slice_total, s.row_normaliser}) {
            f.compute_at(s.output, t.block).bound_extent(s.r, tile_.rows).bound(s.slice, 0, tile_.slices);
            over_slices(f);
        }
        s.slice_total.reorder_storage(s.slice, s.r);
        deal_rows(share(s.state.update(), s.slice))
            .reorder(t.in_y, t.x, t.y, t.part, s.over_chunks)
            .unroll(t.in_y)
            .gpu_threads(t.x, t.y, t.part);
        for (Func f : {s.state, s.row_normaliser, s.state_before, s.row_max, s.rescale, s.slice_sum, s.dot, s.logits,
                       s.weights, s.chunk_output}) {
            f.store_in(MemoryType::Register);
        }
    }

    void scores() {
        load_rows(s.key_rows.bound(s.k, 0, tile_.keys).bound_storage(s.d, tile_.head + kRowPadding), s.k, s.key_type);
        over_keys(s.dot);
        over_keys(s.logits);
        RVar block("dim_block"), in_block("in_dim_block");
        share(deal_rows(s.dot.update()).split(s.k, t.in_x, t.x, tile_.slices), t.x)
            .split(s.over_dim.x, block, in_block, tile_.unroll)
            .reorder(t.in_x, t.in_y, in_block, block, t.x, t.y, t.part)
            .unroll(t.in_x)
            .unroll(t.in_y)
            .unroll(in_block)
            .gpu_threads(t.x, t.y, t.part);
    }

    // Maxima of a thread's keys, then of a row, as each of its threads knows it.
    void softmax() {
        for (Func f : {s.slice_max, s.slice_sum}) {
            over_slices(f);
            deal_rows(share(f.update(), s.slice))
                .reorder(s.over_slice.x, t.in_y, t.x, t.y, t.part)
                .unroll(s.over_slice.x)
                .unroll(t.in_y)
                .gpu_threads(t.x, t.y, t.part);
        }
        for (Func f : {s.state_before, s.row_max, s.rescale}) {
            over_slices(f);
        }
        s.slice_max.reorder_storage(s.slice, s.r, s.c);
        for (Func f : {s.state_before, s.slice_max, s.row_max, s.rescale, s.slice_sum, s.chunk_output}) {
            f.bound(s.slice, 0, tile_.slices);
        }
        for (Func f : {s.weights, s.row_weights}) {
            over_keys(f);
        }
        s.row_weights.bound_storage(s.k, tile_.keys + kNeighbours);
        for (Func f : {s.dot, s.logits, s.weights, s.row_weights}) {
            f.bound(s.k, 0, tile_.keys);
        }
        for (Func f : {s.dot, s.chunk_output, s.logits, s.state_before, s.slice_max, s.row_max, s.weights,
                       s.row_weights, s.rescale, s.slice_sum}) {
            f.compute_at(chunk_loop_).bound_extent(s.r, tile_.rows).bound_extent(s.c, 1);
        }
    }

    void values() {
        Var row("row_of_chunk");
        s.chunk_value.fuse(s.slot, s.granule, row).bound_extent(s.granule, tile_.keys / generators::kGranuleKeys);
        load_rows(s.chunk_value, row, s.value_type);
        deal_rows(share(s.chunk_output, s.slice))
            .reorder(s.element, t.in_y, t.x, t.y, t.part)
            .unroll(s.element)
            .unroll(t.in_y)
            .gpu_threads(t.x, t.y, t.part);
        deal_rows(share(s.chunk_output.update(), s.slice))
            .reorder(s.element, t.in_y, s.over_keys.x, s.over_keys.y, t.x, t.y, t.part)
            .unroll(s.element)
            .unroll(t.in_y)
            .unroll(s.over_keys.x, tile_.unroll)
            .gpu_threads(t.x, t.y, t.part);
        if (s.hides_keys) {
            s.key_seen.compute_at(chunk_loop_).bound(s.k, 0, tile_.keys);
            for (Stage stage : {Stage(s.key_seen), s.key_seen.update()}) {
                stage.split(s.k, t.y, t.x, kNeighbours, TailStrategy::GuardWithIf)
                    .split(t.y, t.part, t.y, tile_.rows / tile_.thread_rows, TailStrategy::GuardWithIf)
                    .gpu_threads(t.x, t.y, t.part);
            }
        }
    }

    AttentionStages &s;
    const Tile tile_;
    const LoopLevel chunk_loop_;
    const Threads t;
};

}  // namespace

void schedule_attention(AttentionStages &stages, const Tile &tile) {
    Schedule(stages, tile).apply();
}

}  // namespace hattn::schedules::gpu
