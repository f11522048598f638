#include "device_cost.h"

#include <algorithm>

#include "cut.h"

namespace hattn::autotune {

namespace {

// Of one compute unit, fitted to no device in particular; ranks matter, not times.
constexpr double kFlopsPerSecond = 1e11, kBytesPerSecond = 2e10;
constexpr double kChunkSeconds = 1e-6;   // of barriers, per chunk of keys
constexpr double kReadSteps = 1.0;       // of bringing an operand into a register, in multiply-adds
constexpr double kTileSeconds = 2e-6;    // of starting a work group
constexpr double kLaunchSeconds = 1e-5;  // of a second launch, which merges

// The part of its instructions that are multiply-adds, where a thread multiplies a block of rows by one of columns.
double multiplying(double rows, double columns) {
    return rows * columns / (rows * columns + kReadSteps * (rows + columns));
}

// Of both products, which are the same work.
double efficiency_of(const Tile &tile) {
    if (tile.warpgroups) {
        return 1.0;  // which bring no operands into registers
    }
    const double rows = tile.thread_rows, keys = ceil_div(tile.keys, tile.slices),
                 elements = ceil_div(tile.head, tile.slices);
    return 2.0 / (1.0 / multiplying(rows, keys) + 1.0 / multiplying(rows, elements));
}

}  // namespace

double predicted_device_seconds(const Candidate &candidate, const Shape &shape, double compute_units) {
    const Cut cut = cut_of(candidate, shape);
    const double keys = cut.keys / cut.splits;  // of a work group
    // Both products, padded to the kernel's head size, whatever rows are there.
    const double flops = 4.0 * cut.rows * keys * candidate.tile.head;
    const double bytes = keys * static_cast<double>(shape.key_dim + shape.value_dim) * shape.bytes_per_element();
    const double group = std::max(flops / kFlopsPerSecond / efficiency_of(candidate.tile), bytes / kBytesPerSecond) +
                         ceil_div(keys, candidate.tile.keys) * kChunkSeconds + kTileSeconds;
    double seconds = ceil_div(cut.tiles * cut.splits, compute_units) * group;
    if (candidate.split_keys > 0) {
        const double floats = cut.tiles * cut.rows * (cut.splits + 1.0) * static_cast<double>(shape.value_dim);
        seconds += kLaunchSeconds + sizeof(float) * floats / (kBytesPerSecond * compute_units);
    }
    return seconds;
}

}  // namespace hattn::autotune
