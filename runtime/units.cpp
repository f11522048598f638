#include "units.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "checked.h"
#include "memory_kernels.h"
#include "status.h"
#include "usual_splits.h"

namespace hattn {

int64_t most_row_blocks(const Problem &problem, int64_t rows) {
    const int64_t padded = problem.batch * ceil_div(problem.query_length, rows);
    // Every packed sequence may end within a tile.
    return problem.packed_queries > 0 ? std::min(padded, problem.packed_queries / rows + problem.batch) : padded;
}

int64_t largest_unit_states(const Problem &problem, const KernelSet &kernels) {
    int64_t floats = 0;
    for (hattn_algorithm algorithm : {HATTN_ALGORITHM_FLASH, HATTN_ALGORITHM_SPLIT_KV, HATTN_ALGORITHM_UNFUSED}) {
        if (const Reach &reach = kernels.reach(algorithm); reach.most_splits > 1) {
            const int64_t rows = std::min(kernels.most_rows(algorithm), UsualSplits(algorithm).most_rows(problem));
            floats = std::max(floats, state_floats(rows, reach.most_splits, problem.value_dim));
        }
    }
    return floats;
}

TaskWriter::TaskWriter(const hattn_plan &plan, const hattn_attention_args &args, Task *tasks)
    : plan_(plan), args_(args), capacity_(plan.layout.task_capacity), tasks_(tasks), merges_(tasks + capacity_) {}

bool TaskWriter::next_wave() {
    task_count_ = merge_count_ = states_used_ = batch_begin_ = batch_end_ = 0;
    while (batch_ < plan_.problem.batch) {
        if (units_ < 0) {
            start_sequence();
        }
        for (; unit_ < units_; ++unit_) {
            if (!add_unit()) {
                break;  // full; the wave at hand never is empty then
            }
        }
        if (unit_ < units_) {
            require(task_count_ > 0, HATTN_INTERNAL_ERROR, "no room for any part of sequence ", batch_);
            break;
        }
        ++batch_;
        unit_ = 0;
        units_ = -1;
    }
    // Longest sequences first; in a sequence one kv head after the other, whose keys then stay in cache, or one range
    // of keys after the other where kv heads lie between the keys of each other; there longest first, and tiles that
    // read the same keys one after the other.
    const int64_t group = plan_.problem.group_size();
    const bool by_keys = std::llabs(args_.k.stride[1]) < std::llabs(args_.k.stride[2]);
    std::sort(tasks_, tasks_ + task_count_, [group, by_keys](const Task &a, const Task &b) {
        const auto key = [group, by_keys](const Task &task) {
            const int32_t range = by_keys ? task.key : 0;
            return std::tuple(-task.work, task.batch, range, task.head / group, -task.cost(), task.key, task.order);
        };
        return key(a) < key(b);
    });
    return task_count_ > 0;
}

bool TaskWriter::next_batch() {
    batch_begin_ = batch_end_;
    weights_used_ = 0;
    for (; batch_end_ < task_count_; ++batch_end_) {
        Task &task = tasks_[batch_end_];
        if (weights_used_ + task.weight_floats() > plan_.layout.weight_floats) {
            break;  // never the first: the pool holds any task's
        }
        task.weights = weights_used_;
        weights_used_ += task.weight_floats();
    }
    return batch_begin_ < batch_end_;
}

void TaskWriter::start_sequence() {
    const Problem &problem = plan_.problem;
    const Sequence sequence(problem, args_, batch_);
    const bool padded = sequence.query_length < sequence.queries.count;
    work_ = sequence.query_length * sequence.kv_length;
    attention_units_ = 0;
    if (sequence.query_length > 0) {
        choice_ = choose(plan_.kernels, problem, sequence.query_length, sequence.kv_length, lie_apart(problem, args_));
        row_tiles_ = RowTiles(choice_, sequence.query_length);
        head_blocks_ = ceil_div(problem.group_size(), choice_.heads);
        attention_units_ = problem.kv_heads * head_blocks_ * row_tiles_.count();
    }
    units_ = attention_units_ + (padded ? problem.query_heads : 0);
}

// Returns false if the unit does not fit into this wave any more.
bool TaskWriter::add_unit() {
    const Problem &problem = plan_.problem;
    const Sequence sequence(problem, args_, batch_);
    if (unit_ >= attention_units_) {
        if (task_count_ == capacity_) {
            return false;
        }
        const int64_t head = unit_ - attention_units_;
        Task &task = tasks_[task_count_];
        task = Task{};
        task.kind = TaskKind::kFill;
        task.past_length = true;
        task.batch = static_cast<int32_t>(batch_);
        task.head = static_cast<int32_t>(head);
        task.heads = 1;
        task.row = static_cast<int32_t>(sequence.query_length);
        task.rows = static_cast<int32_t>(sequence.queries.count - sequence.query_length);
        task.order = task_count_++;
        return true;
    }
    const int64_t blocks = unit_ / row_tiles_.count();
    const int64_t block = blocks % head_blocks_ * choice_.heads;
    const int64_t kv_head = blocks / head_blocks_;
    return add_attention(sequence, kv_head * problem.group_size() + block,
                         std::min(choice_.heads, problem.group_size() - block), row_tiles_[unit_ % row_tiles_.count()]);
}

bool TaskWriter::add_attention(const Sequence &sequence, int64_t head, int64_t heads, const RowTile &tile) {
    const KeyRange keys = sequence.visible(tile.row, tile.rows);
    Task task{};
    task.kind = keys.empty() ? TaskKind::kFill : TaskKind::kAttention;
    task.batch = static_cast<int32_t>(batch_);
    task.work = work_;
    task.head = static_cast<int32_t>(head);
    task.heads = static_cast<int32_t>(heads);
    task.row = static_cast<int32_t>(tile.row);
    task.rows = static_cast<int32_t>(tile.rows);
    task.key = static_cast<int32_t>(keys.begin);
    task.keys = static_cast<int32_t>(keys.size());
    task.kernel = tile.kernel;
    task.values_kernel = keys.empty() ? nullptr : choice_.values_kernel;
    if (const int64_t split = choice_.split_keys; split > 0 && keys.size() > split) {
        return add_splits(task, keys);
    }
    if (task_count_ == capacity_) {
        return false;
    }
    task.order = task_count_;
    tasks_[task_count_++] = task;
    return true;
}

bool TaskWriter::add_splits(const Task &unit, const KeyRange &keys) {
    const int64_t split_size = choice_.split_keys;
    const int64_t splits = ceil_div(keys.size(), split_size);
    const int64_t floats = state_floats(int64_t{unit.rows} * unit.heads, splits, plan_.problem.value_dim);
    if (task_count_ + splits > capacity_ || states_used_ + floats > plan_.layout.state_floats) {
        return false;
    }
    Task merge = unit;
    merge.kind = TaskKind::kMerge;
    merge.states = static_cast<int32_t>(splits);
    merge.state = states_used_;
    merges_[merge_count_++] = merge;
    for (int64_t split = 0; split < splits; ++split) {
        Task task = merge;
        task.kind = TaskKind::kSplit;
        task.split = static_cast<int32_t>(split);
        task.key = static_cast<int32_t>(keys.begin + split * split_size);
        task.keys = static_cast<int32_t>(std::min(split_size, keys.end - task.key));
        task.order = task_count_;
        tasks_[task_count_++] = task;
    }
    states_used_ += floats;
    return true;
}

}  // namespace hattn
