#include "attention.h"

#include "schedules/stored.h"

namespace hattn::schedules::gpu {

using namespace Halide;
using generators::AttentionStages;
using generators::kSliceVector;

namespace {

// Shared memory has 32 banks of 4 bytes. Threads that write to neighbouring rows find them in different banks where
// rows are so much longer than a multiple of 32. Vectors stay aligned.
constexpr int kRowPadding = kSliceVector;

// Loop variables of a work group: x counts the threads of a row, y the blocks of rows.
struct Threads {
    Var block{"block"}, x{"x"}, y{"y"}, in_x{"in_x"}, in_y{"in_y"};
};

// Rows r of f are dealt to threads in blocks.
template<typename Stage>
void deal_rows(Stage stage, const AttentionStages &s, const Tile &tile, const Threads &t) {
    stage.split(s.r, t.y, t.in_y, tile.thread_rows);
}

// A value per row of a chunk, a thread each for as many rows as there are.
template<typename Stage>
void one_thread_per_row(Stage stage, const AttentionStages &s, const Tile &tile, const Threads &t) {
    stage.split(s.r, t.y, t.x, tile.thread_rows).gpu_threads(t.x, t.y);
}

void schedule_output(AttentionStages &s, const Tile &tile, const Threads &t) {
    // There is one `heads` of d, but only the kernel's launch tells, so that loops inside it have fixed extents.
    Var heads("heads"), turn("turn"), dealt("dealt"), vector("vector");
    s.output.split(s.r, t.block, s.r, tile.rows, TailStrategy::GuardWithIf)
        .split(s.r, t.y, t.in_y, tile.thread_rows)
        .split(s.d, heads, s.d, tile.head, TailStrategy::GuardWithIf)
        .split(s.d, turn, dealt, kSliceVector * tile.slices)
        .split(dealt, t.x, vector, kSliceVector)
        .reorder(vector, turn, t.in_y, heads, t.x, t.y, t.block)
        .unroll(vector)
        .unroll(turn)
        .unroll(t.in_y)
        .gpu_blocks(t.block)
        .gpu_threads(t.x, t.y);
    s.state.store_in(MemoryType::Register).compute_at(s.output, t.block);
    s.state.bound_extent(s.r, tile.rows).bound(s.slice, 0, tile.slices);
    deal_rows(s.state, s, tile, t);
    s.state.reorder(t.in_y, s.slice, t.y).unroll(t.in_y).gpu_threads(s.slice, t.y);
    for (int i : {0, 1}) {
        deal_rows(s.state.update(i), s, tile, t);
    }
    s.state.update(0).reorder(t.in_y, s.slice, t.y, s.over_chunks).unroll(t.in_y).gpu_threads(s.slice, t.y);
    s.state.update(1).reorder(t.in_y, s.slice, t.y).unroll(t.in_y).gpu_threads(s.slice, t.y);
}

// Rows of the tile or of a chunk, from memory to shared memory: neighbouring threads read neighbouring elements.
Func &load_rows(Func &f, Var dim, Var row, const Tile &tile, const Threads &t) {
    return f.bound(dim, 0, tile.head)
        .split(dim, t.in_x, t.x, tile.slices)
        .split(row, t.in_y, t.y, tile.rows / tile.thread_rows, TailStrategy::GuardWithIf)
        .reorder(t.in_x, t.in_y, t.x, t.y)
        .unroll(t.in_x)
        .gpu_threads(t.x, t.y);
}

// Queries and keys are stored transposed, so that a thread reads its rows and its keys as vectors. What it computes
// stays in registers.
void schedule_scores(AttentionStages &s, const LoopLevel &chunk_loop, const Tile &tile, const Threads &t) {
    load_rows(s.key_rows, s.d, s.k, tile, t)
        .compute_at(chunk_loop)
        .bound(s.k, 0, tile.keys)
        .reorder_storage(s.k, s.d)
        .bound_storage(s.k, tile.keys + kRowPadding);
    specialize_for_storage(s.key_rows, s.key_type);
    s.logits.store_in(MemoryType::Register).compute_at(chunk_loop).bound(s.k, 0, tile.keys);
    deal_rows(s.logits, s, tile, t);
    s.logits.split(s.k, t.x, t.in_x, tile.keys / tile.slices)
        .reorder(t.in_x, t.in_y, t.x, t.y)
        .unroll(t.in_x)
        .unroll(t.in_y)
        .gpu_threads(t.x, t.y);
    RVar block("dim_block"), in_block("in_dim_block");
    s.dot.compute_at(s.logits, t.x).unroll(s.r).unroll(s.k);
    s.dot.update()
        .split(s.over_dim.x, block, in_block, tile.unroll)
        .reorder(s.k, s.r, in_block, block)
        .unroll(s.k)
        .unroll(s.r)
        .unroll(in_block);
}

// Maxima first of a thread's keys, then of a row; weights in shared memory, where the values need them.
void schedule_softmax(AttentionStages &s, const LoopLevel &chunk_loop, const Tile &tile, const Threads &t) {
    RVar key("key"), in_thread("in_thread"), thread("thread");
    Var part("part");
    s.chunk_max.update().fuse(s.over_keys.x, s.over_keys.y, key).split(key, thread, in_thread, tile.keys / tile.slices);
    Func part_max = s.chunk_max.update().rfactor(thread, part);
    part_max.compute_at(chunk_loop).bound(part, 0, tile.slices);
    deal_rows(part_max, s, tile, t);
    part_max.reorder(t.in_y, part, t.y).unroll(t.in_y).gpu_threads(part, t.y);
    deal_rows(part_max.update(), s, tile, t);
    part_max.update().reorder(in_thread, t.in_y, part, t.y).unroll(in_thread).unroll(t.in_y).gpu_threads(part, t.y);

    s.weights.compute_at(chunk_loop).bound(s.k, 0, tile.keys).bound_storage(s.r, tile.rows + kRowPadding);
    deal_rows(s.weights, s, tile, t);
    s.weights.split(s.k, t.x, t.in_x, tile.keys / tile.slices)
        .reorder(t.in_y, t.in_x, t.x, t.y)
        .unroll(t.in_x)
        .unroll(t.in_y)
        .gpu_threads(t.x, t.y);
    for (Func f : {s.chunk_max, s.chunk_sum}) {
        f.compute_at(chunk_loop);
        one_thread_per_row(f, s, tile, t);
        one_thread_per_row(f.update(), s, tile, t);
    }
    for (Func f : {s.logits, s.chunk_max, part_max, s.weights, s.chunk_sum}) {
        f.bound_extent(s.r, tile.rows).bound_extent(s.c, 1);
    }
}

void schedule_values(AttentionStages &s, const LoopLevel &chunk_loop, const Tile &tile, const Threads &t) {
    Var row("row_of_chunk");
    s.chunk_value.fuse(s.slot, s.granule, row)
        .bound_extent(s.granule, tile.keys / generators::kGranuleKeys)
        .compute_at(chunk_loop);
    load_rows(s.chunk_value, s.d, row, tile, t);
    specialize_for_storage(s.chunk_value, s.value_type);
    s.chunk_output.compute_at(s.state, s.slice).unroll(s.r).unroll(s.element);
    s.chunk_output.update()
        .reorder(s.element, s.r, s.over_keys.x, s.over_keys.y)
        .unroll(s.element)
        .unroll(s.r)
        .unroll(s.over_keys.x, tile.unroll);
    if (s.hides_keys) {
        s.key_seen.compute_at(chunk_loop).bound(s.k, 0, tile.keys);
        for (Stage stage : {Stage(s.key_seen), s.key_seen.update()}) {
            stage.split(s.k, t.y, t.x, tile.slices, TailStrategy::GuardWithIf).gpu_threads(t.x, t.y);
        }
    }
}

}  // namespace

void schedule_attention(AttentionStages &s, const Tile &tile) {
    const Threads t;
    const LoopLevel chunk_loop(s.state, s.over_chunks.x);
    schedule_output(s, tile, t);
    load_rows(s.query_tile, s.d, s.r, tile, t)
        .bound_extent(s.r, tile.rows)
        .compute_at(s.output, t.block)
        .bound_storage(s.r, tile.rows + kRowPadding);
    specialize_for_queries(s.query_tile, s.query_type);
    schedule_scores(s, chunk_loop, tile, t);
    schedule_softmax(s, chunk_loop, tile, t);
    schedule_values(s, chunk_loop, tile, t);
    for (Func f : {s.key_rows, s.chunk_value}) {
        f.bound_extent(s.c, 1);
    }
}

}  // namespace hattn::schedules::gpu
