#include "tuning.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace hattn {

int size_exponent(int64_t n) {
    // round(log2 n) = floor(log2(2 n^2) / 2)
    return static_cast<int>(std::bit_width(static_cast<uint64_t>(n) * static_cast<uint64_t>(n)) / 2);
}

int64_t largest_of_exponent(int exponent) {
    // The largest n with n^2 < 2^(2 exponent + 1), of which the root is never an integer.
    return static_cast<int64_t>(std::sqrt(std::ldexp(1.0, 2 * exponent + 1)));
}

TuningFamily family_of(const Problem &problem, hattn_algorithm algorithm, const TargetInfo &target) {
    return {algorithm,
            problem.k_dtype == HATTN_FLOAT32 ? problem.v_dtype : problem.k_dtype,
            size_exponent(std::max<int64_t>(1, std::max(problem.key_dim, problem.value_dim))),
            size_exponent(problem.group_size()),
            problem.hooks,
            &target};
}

TuningCell cell_of(int64_t query_length, int64_t keys) {
    return {std::min(size_exponent(std::max<int64_t>(1, query_length)), kRowClasses - 1),
            std::min(size_exponent(std::max<int64_t>(1, keys)), kKeyClasses - 1)};
}

void TuningGrid::add(const TuningEntry &entry) {
    entries_.push_back(entry);
}

void TuningGrid::fill() {
    const auto steps_to = [this](size_t entry, int rows, int keys) {
        const TuningCell &cell = entries_[entry].cell;
        const int row_steps = std::abs(cell.rows - rows), key_steps = std::abs(cell.keys - keys);
        const bool near = row_steps <= kMostRowSteps && key_steps <= kMostKeySteps;
        // Rows decide more than keys do.
        return near ? 4 * row_steps + key_steps : std::numeric_limits<int>::max();
    };
    for (int rows = 0; rows < kRowClasses; ++rows) {
        for (int keys = 0; keys < kKeyClasses; ++keys) {
            int fewest = std::numeric_limits<int>::max();
            int16_t &nearest = nearest_[static_cast<size_t>(rows * kKeyClasses + keys)];
            nearest = -1;
            for (size_t i = 0; i < entries_.size(); ++i) {
                if (const int steps = steps_to(i, rows, keys); steps < fewest) {
                    fewest = steps;
                    nearest = static_cast<int16_t>(i);
                }
            }
        }
    }
}

TuningTable::TuningTable(const std::vector<TuningEntry> &entries) : size_(entries.size()) {
    for (const TuningEntry &entry : entries) {
        auto grid = std::find_if(grids_.begin(), grids_.end(),
                                 [&](const TuningGrid &other) { return other.family() == entry.family; });
        if (grid == grids_.end()) {
            grid = grids_.insert(grid, TuningGrid(entry.family));
        }
        grid->add(entry);
        invariant_only_ = invariant_only_ && entry.invariant;
    }
    for (TuningGrid &grid : grids_) {
        grid.fill();
    }
}

const TuningGrid *TuningTable::find(const TuningFamily &family) const {
    const TuningGrid *nearest = nullptr;
    int fewest = std::numeric_limits<int>::max();
    for (const TuningGrid &grid : grids_) {
        const TuningFamily &other = grid.family();
        if (other.target != family.target || other.algorithm != family.algorithm || other.dtype != family.dtype ||
            (other.hooks != family.hooks && other.hooks != 0)) {
            continue;
        }
        const int steps = std::abs(other.head_exponent - family.head_exponent) +
                          4 * std::abs(other.group_exponent - family.group_exponent) +
                          (other.hooks != family.hooks ? 64 : 0);
        if (steps < fewest) {
            fewest = steps;
            nearest = &grid;
        }
    }
    return nearest;
}

}  // namespace hattn
