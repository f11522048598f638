// Divides an execute into units, one tile of rows each, and collects the tasks they make into waves.
#pragma once

#include <cstdint>

#include "plan.h"
#include "row_tiles.h"
#include "sequence.h"
#include "task.h"

namespace hattn {

// Of a wave of so many tasks: a unit that is merged has at least two.
constexpr int64_t most_merges(int64_t tasks) {
    return tasks / 2;
}

// The most tiles of `rows` rows that the sequences of an execute make, per head.
int64_t most_row_blocks(const Problem &problem, int64_t rows);

// Floats of a partial state: outputs (d, r, n), then lse (r, n).
inline int64_t state_floats(int64_t rows, int64_t states, int64_t value_dim) {
    return rows * states * (value_dim + 1);
}

// The tasks of one execute, wave by wave, in memory that the caller provides.
class TaskWriter {
public:
    // `tasks` holds the plan's task_capacity tasks of the first phase, and as many merges behind them.
    TaskWriter(const hattn_plan &plan, const hattn_attention_args &args, Task *tasks);

    // Prepares the next wave; false when there is none left.
    bool next_wave();

    // Of the wave at hand, prepares the next batch: tasks whose weights fit into their pool together. False when there
    // is none left.
    bool next_batch();

    // Of the batch at hand: independent tasks, longest sequences first. Those of unfused are computed in two steps,
    // scores and values, of which the second needs the first one done.
    const Task *tasks() const {
        return tasks_ + batch_begin_;
    }
    int64_t task_count() const {
        return batch_end_ - batch_begin_;
    }
    bool has_unfused() const {
        return weights_used_ > 0;
    }
    // Of the wave at hand: the merges that need all of its tasks done.
    const Task *merges() const {
        return merges_;
    }
    int64_t merge_count() const {
        return merge_count_;
    }

private:
    void start_sequence();
    bool add_unit();
    bool add_attention(const Sequence &sequence, int64_t head, int64_t heads, const RowTile &tile);
    bool add_splits(const Task &unit, const KeyRange &keys);

    const hattn_plan &plan_;
    const hattn_attention_args &args_;
    const int64_t capacity_;
    Task *tasks_, *merges_;
    int64_t task_count_ = 0, merge_count_ = 0, states_used_ = 0;
    int64_t batch_begin_ = 0, batch_end_ = 0, weights_used_ = 0;

    // Where the next wave starts.
    int64_t batch_ = 0, unit_ = 0;
    // Of the sequence at hand.
    int64_t work_ = 0;
    int64_t units_ = -1, attention_units_ = 0, head_blocks_ = 0;
    Choice choice_{};
    RowTiles row_tiles_{};
};

// The most partial states, in floats, that one unit of this plan can need.
int64_t largest_unit_states(const Problem &problem, const KernelSet &kernels);

}  // namespace hattn
