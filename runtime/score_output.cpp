#include "score_output.h"

#include <algorithm>
#include <cmath>
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

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What stands where there is no query or no key.
float padding_of(hattn_scores mode) {
    return mode == HATTN_SCORES_MASKED ? -kInfinity : 0.0f;
}

// From here on float32's log-sum-exp is too coarse for probabilities, of which it would leave out, at 1e9 of ten keys
// alike, nine tenths: rows that padding pushes there are normalised by themselves.
constexpr float kCoarseLse = 65536.0f;

// Makes a row of masked scores, which may hold a sink too, probabilities.
void normalise(float *scores, int64_t keys, float sink) {
    double largest = sink;
    for (int64_t j = 0; j < keys; ++j) {
        largest = std::max<double>(largest, scores[j]);
    }
    double sum = std::exp(sink - largest);
    for (int64_t j = 0; j < keys; ++j) {
        sum += std::exp(scores[j] - largest);
    }
    for (int64_t j = 0; j < keys; ++j) {
        scores[j] = static_cast<float>(std::exp(scores[j] - largest) / sum);
    }
}

template<typename Visit>
void for_each_call(const Sequence &sequence, Visit visit) {
    for (int64_t key = 0; key < sequence.kv_length; key += kMaxKeysPerCall) {
        visit(KeyRange{key, std::min(key + kMaxKeysPerCall, sequence.kv_length)});
    }
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
    const float *lse = work.lse.data ? work.lse.at(batch, head, row) : nullptr;
    if (real_rows > 0) {
        for_each_call(sequence, [&](const KeyRange &keys) {
            call_scores(site, task, keys, lse, work.lse.row_stride, scores + keys.begin, row_stride);
        });
    }
    for (int64_t i = 0; problem.scores == HATTN_SCORES_PROBABILITIES && i < real_rows; ++i) {
        if (const float of_row = lse[i * work.lse.row_stride];
            std::fabs(of_row) >= kCoarseLse && std::isfinite(of_row)) {
            Task one = task;
            one.row += static_cast<int32_t>(i);
            one.rows = 1;
            one.kernel = work.plan.kernels.scores;
            float *row_scores = scores + i * row_stride;
            for_each_call(sequence, [&](const KeyRange &keys) {
                call_scores(site, one, keys, nullptr, 0, row_scores + keys.begin, row_stride);
            });
            normalise(row_scores, sequence.kv_length, work.args.sinks ? work.args.sinks[head] : -kInfinity);
        }
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
