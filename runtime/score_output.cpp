#include "score_output.h"

#include <algorithm>
#include <limits>

#include "checked.h"
#include "kernel_call.h"
#include "key_storage.h"
#include "parallel.h"
#include "tensor.h"

namespace hattn {

namespace {

struct ScoreWork {
    const hattn_plan &plan;
    const hattn_attention_args &args;
    const LseView &lse;
    const KernelInfo *kernel;
    int64_t row_blocks, all_keys;
};

// What stands where there is no query or no key.
float padding_of(hattn_scores mode) {
    return mode == HATTN_SCORES_MASKED ? -std::numeric_limits<float>::infinity() : 0.0f;
}

// One tile of rows of one head, all keys.
void write_tile(const ScoreWork &work, int64_t index, ScratchArena &scratch) {
    const Problem &problem = work.plan.problem;
    const int64_t tile_rows = work.kernel->tile.rows;
    const int64_t batch = index / work.row_blocks / problem.query_heads;
    const int64_t head = index / work.row_blocks % problem.query_heads;
    const int64_t row = index % work.row_blocks * tile_rows;
    const Sequence sequence(problem, work.args, batch);
    const int64_t rows = std::min(tile_rows, sequence.queries.count - row);
    const int64_t real_rows = std::clamp<int64_t>(sequence.query_length - row, 0, rows);
    float *scores = element<float>(work.args.scores, batch, head, row);
    const int64_t row_stride = work.args.scores.stride[2];

    Task task{};
    task.batch = static_cast<int32_t>(batch);
    task.head = static_cast<int32_t>(head);
    task.heads = 1;
    task.row = static_cast<int32_t>(row);
    task.rows = static_cast<int32_t>(real_rows);
    task.kernel = work.kernel;
    const CallSite site{work.plan, work.args, scratch};
    for (int64_t key = 0; key < sequence.kv_length && real_rows > 0; key += kMaxKeysPerCall) {
        const KeyRange keys{key, std::min(key + kMaxKeysPerCall, sequence.kv_length)};
        call_scores(site, task, keys, work.lse.data ? work.lse.at(batch, head, row) : nullptr, work.lse.row_stride,
                    scores + key, row_stride);
    }
    for (int64_t i = 0; i < rows; ++i) {
        const int64_t first = i < real_rows ? sequence.kv_length : 0;
        std::fill(scores + i * row_stride + first, scores + i * row_stride + work.all_keys, padding_of(problem.scores));
    }
}

}  // namespace

void write_scores(const hattn_plan &plan, const hattn_attention_args &args, const LseView &lse, char *workers) {
    const KernelInfo *kernel =
        plan.problem.scores == HATTN_SCORES_PROBABILITIES ? plan.kernels.probabilities : plan.kernels.scores;
    const int64_t row_blocks = ceil_div(args.q.extent[2], kernel->tile.rows);
    const ScoreWork work{plan, args, lse, kernel, row_blocks, key_extent(plan.problem, args)};
    const int64_t count = work.all_keys > 0 ? plan.problem.batch * plan.problem.query_heads * row_blocks : 0;
    for_each_task(plan.executor, count, false, [&](int64_t index, int32_t worker) {
        const size_t bytes = plan.layout.worker_stride;
        ScratchArena scratch(workers + static_cast<size_t>(worker) * bytes, bytes);
        write_tile(work, index, scratch);
    });
}

}  // namespace hattn
