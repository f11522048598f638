#include "cost_model.h"

#include <algorithm>

#include "cut.h"

namespace hattn::autotune {

namespace {

// Fitted to no machine in particular; ranks matter, not times.
constexpr double kTaskSeconds = 4e-7;        // of handing a task out and calling a kernel
constexpr double kWaveSeconds = 2e-6;        // of waiting for all tasks before what follows
constexpr double kFlopsPerExponential = 24;  // of a weight: exponential, maximum, sum
constexpr double kFullAccumulators = 10;     // that hide the latency of multiply-adds
constexpr double kHorizontal = 4;            // steps that sum a vector up, per dot product

bool lanes_hold_rows(const Candidate &candidate, int lanes) {
    const bool may_hold_head =
        candidate.algorithm == "split_kv" && candidate.tile.rows <= 8;  // see schedules/targets.h
    return !may_hold_head && candidate.tile.rows >= lanes;
}

// The share of the multiply-add peak that a register block reaches: two loads and two multiply-adds a cycle, and enough
// accumulators to hide their latency.
double block_share(double vectors, double scalars) {
    const double multiply_adds = vectors * scalars;
    return std::min({1.0, multiply_adds / (vectors + scalars), multiply_adds / kFullAccumulators});
}

double arithmetic_seconds(const Candidate &candidate, const Shape &shape, const Cut &cut, const Machine &machine,
                          int lanes) {
    const double weights = cut.tiles * cut.rows * cut.keys;
    const auto key_dim = static_cast<double>(shape.key_dim), value_dim = static_cast<double>(shape.value_dim);
    double scores = 2.0 * weights * key_dim / block_share(candidate.tile.row_vectors, candidate.tile.key_unroll);
    if (!lanes_hold_rows(candidate, lanes)) {
        scores += 2.0 * weights * kHorizontal * lanes;
    }
    const double values =
        2.0 * weights * value_dim / block_share(candidate.tile.row_vectors, candidate.tile.value_unroll);
    const double exponentials = weights * kFlopsPerExponential;
    return (scores + values + exponentials) / machine.flops_per_second;
}

double memory_seconds(const Candidate &candidate, const Shape &shape, const Cut &cut, const Machine &machine) {
    const double bytes_of_key = shape.bytes_per_element() * static_cast<double>(shape.key_dim + shape.value_dim);
    const double bytes_of_pass = bytes_of_key * mean_keys(shape, 1.0);
    // A window sees other keys in each pass.
    const double bytes_of_head =
        shape.window_left < 0 ? bytes_of_pass : bytes_of_key * static_cast<double>(shape.seen_keys());
    const double heads = static_cast<double>(shape.batch * shape.kv_heads);
    const double first = heads * bytes_of_head / machine.read_speed(heads * bytes_of_head);
    const double again = heads * (cut.passes - 1.0) * bytes_of_pass / machine.read_speed(bytes_of_pass);
    double weights = 0.0;  // written and read
    if (candidate.algorithm == "unfused") {
        const double bytes = 2.0 * sizeof(float) * cut.tiles * cut.rows * cut.keys;
        weights = bytes / machine.read_speed(bytes);
    }
    return first + again + weights;
}

double merge_seconds(const Shape &shape, const Cut &cut, const Machine &machine) {
    if (cut.splits <= 1.0) {
        return 0.0;
    }
    const double floats = cut.tiles * cut.splits * cut.rows * static_cast<double>(shape.value_dim + 1);
    return kWaveSeconds + cut.tiles * kTaskSeconds / machine.threads +
           2.0 * sizeof(float) * floats / machine.read_speed(sizeof(float) * floats);
}

}  // namespace

double predicted_seconds(const Candidate &candidate, const Shape &shape, const Machine &machine, int lanes) {
    const Cut cut = cut_of(candidate, shape);
    const double tasks = cut.tiles * cut.splits * (candidate.algorithm == "unfused" ? 2.0 : 1.0);
    // The last tasks leave some threads without work.
    const double uneven = ceil_div(tasks, machine.threads) / (tasks / machine.threads);
    const double arithmetic = arithmetic_seconds(candidate, shape, cut, machine, lanes) * uneven / machine.threads;
    return std::max(arithmetic, memory_seconds(candidate, shape, cut, machine)) + 0.2 * arithmetic +
           tasks * kTaskSeconds / machine.threads + merge_seconds(shape, cut, machine);
}

}  // namespace hattn::autotune
