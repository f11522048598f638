#include "decode.h"

#include "schedules/stored.h"

namespace hattn::schedules::gpu {

using namespace Halide;
using generators::AttentionStages;
using generators::kSliceVector;

namespace {

// Shared memory has 32 banks of 4 bytes: threads that write vectors to neighbouring rows find them in different banks
// where rows are so much longer than a multiple of 32. Vectors stay aligned.
constexpr int kRowPadding = kSliceVector;

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
    int slice_elements() const {
        return tile_.head / tile_.slices;
    }
    int group_keys() const {
        return tile_.keys / tile_.key_groups;
    }

    // A value per row and key of a chunk.
    void over_scores(Stage stage, const Var &key) const {
        stage.fuse(key, s.r, score).split(score, y, x, tile_.slices, TailStrategy::GuardWithIf).gpu_threads(x, y);
    }

    void output() {
        // There is one `heads` of d, but only the kernel's launch tells, so that loops inside it have fixed extents.
        Var heads("heads"), turn("turn");
        const int threads = tile_.slices * tile_.key_groups;
        s.output.split(s.r, block, s.r, tile_.rows, TailStrategy::GuardWithIf)
            .split(s.d, heads, s.d, tile_.head, TailStrategy::GuardWithIf)
            .split(s.d, turn, s.d, threads, TailStrategy::GuardWithIf)
            .split(s.d, y, x, tile_.slices)
            .reorder(s.r, turn, heads, x, y, block)
            .never_partition_all()
            .gpu_threads(x, y)
            .gpu_blocks(block);
        s.query_tile.compute_at(s.output, block)
            .bound(s.d, 0, tile_.head)
            .bound_extent(s.r, tile_.rows)
            .reorder_storage(s.d, s.r)
            .split(s.d, in_x, x, tile_.slices)
            .split(s.r, in_y, y, tile_.key_groups, TailStrategy::GuardWithIf)
            .reorder(in_x, in_y, x, y)
            .unroll(in_x)
            .gpu_threads(x, y);
        specialize_for_floats(s.query_tile, s.query_type);
        s.group_rows.compute_at(s.output, block)
            .bound(s.d, 0, tile_.head)
            .bound(s.key_group, 0, tile_.key_groups)
            .bound_extent(s.r, tile_.rows)
            .split(s.d, x, in_x, slice_elements())
            .reorder(in_x, s.r, x, s.key_group)
            .unroll(in_x)
            .unroll(s.r)
            .gpu_threads(x, s.key_group);
        s.group_statistics.compute_at(s.output, block)
            .bound_extent(s.r, tile_.rows)
            .bound(s.slice, 0, 1)
            .bound(s.key_group, 0, tile_.key_groups)
            .reorder(s.r, s.slice, s.key_group)
            .unroll(s.r)
            .gpu_threads(s.slice, s.key_group);
        s.row_normaliser.compute_at(s.output, block).bound_extent(s.r, tile_.rows).gpu_threads(s.r);
    }

    void state() {
        s.state.store_in(MemoryType::Register)
            .compute_at(s.output, block)
            .bound_extent(s.r, tile_.rows)
            .bound(s.slice, 0, tile_.slices)
            .bound(s.key_group, 0, tile_.key_groups)
            .reorder(s.r, s.slice, s.key_group)
            .unroll(s.r)
            .gpu_threads(s.slice, s.key_group);
        s.state.update()
            .reorder(s.r, s.slice, s.key_group, s.over_chunks)
            .unroll(s.r)
            .never_partition_all()
            .gpu_threads(s.slice, s.key_group);
    }

    void scores() {
        s.lane_sums.compute_at(chunk_loop_)
            .bound(s.lane, 0, tile_.slices)
            .bound(s.k, 0, tile_.keys)
            .reorder_storage(s.k, s.lane, s.r)
            .bound_storage(s.k, tile_.keys + kRowPadding)
            .split(s.k, y, in_y, group_keys())
            .reorder(s.r, in_y, s.lane, y)
            .unroll(s.r)
            .gpu_threads(s.lane, y);
        row_elements(s.key_rows, s.key_type).compute_at(s.lane_sums, in_y);
        s.query_tile.in(s.lane_sums)
            .compute_at(s.lane_sums, s.lane)
            .align_bounds(s.d, slice_elements())
            .bound_extent(s.d, slice_elements())
            .bound_extent(s.r, tile_.rows)
            .reorder_storage(s.d, s.r)
            .reorder(s.d, s.r)
            .vectorize(s.d, slice_elements())
            .unroll(s.r);
        s.logits.compute_at(chunk_loop_).bound(s.k, 0, tile_.keys);
        over_scores(s.logits, s.k);
        s.dot.compute_at(s.logits, x).update().unroll(s.over_lanes.x);
    }

    // What a thread has of a key or value. TypedLoops makes of a loop over them that what it reads comes first.
    Func &row_elements(Func &f, const Param<int> &type) const {
        f.align_bounds(s.d, slice_elements())
            .bound_extent(s.d, slice_elements())
            .never_partition_all()
            .vectorize(s.d, slice_elements());
        specialize_for_floats(f, type);
        return f;
    }

    void softmax() {
        s.slice_max.compute_at(chunk_loop_).bound(s.slice, 0, tile_.keys / kSliceVector).reorder_storage(s.slice, s.r);
        over_scores(s.slice_max, s.slice);
        s.row_max.compute_at(chunk_loop_).bound(s.slice, 0, 1).reorder(s.slice, s.r).gpu_threads(s.slice, s.r);
        s.weights.compute_at(chunk_loop_).bound(s.k, 0, tile_.keys).reorder_storage(s.k, s.r);
        over_scores(s.weights, s.k);
        for (Func f : {s.lane_sums, s.logits, s.slice_max, s.row_max, s.weights}) {
            f.bound_extent(s.r, tile_.rows).bound_extent(s.c, 1);
        }
    }

    void values() {
        row_elements(s.value_rows, s.value_type).compute_at(s.chunk_output, s.over_own_keys);
        s.chunk_output.compute_at(s.state, s.slice).unroll(s.r).unroll(s.element);
        s.chunk_output.update().reorder(s.element, s.r, s.over_own_keys).unroll(s.element).unroll(s.r);
        s.own_sum.compute_at(s.state, s.slice).unroll(s.r);
        s.own_sum.update().unroll(s.over_own_keys).unroll(s.r);
        if (s.hides_keys) {
            s.key_seen.compute_at(chunk_loop_).bound(s.k, 0, tile_.keys).bound_extent(s.c, 1);
            for (Stage stage : {Stage(s.key_seen), s.key_seen.update()}) {
                stage.split(s.k, y, x, tile_.slices, TailStrategy::GuardWithIf).gpu_threads(x, y);
            }
        }
    }

    AttentionStages &s;
    const Tile tile_;
    const LoopLevel chunk_loop_;
    // x: slices, y: groups of keys.
    const Var block{"block"}, x{"x"}, y{"y"}, in_x{"in_x"}, in_y{"in_y"}, score{"score"};
};

}  // namespace

void schedule_decode(AttentionStages &stages, const Tile &tile) {
    Schedule(stages, tile).apply();
}

}  // namespace hattn::schedules::gpu
