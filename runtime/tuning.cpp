#include "tuning.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

namespace hattn {

int size_exponent(int64_t n) {
    // round(log2 n) = floor(log2(2 n^2) / 2)
    return static_cast<int>(std::bit_width(static_cast<uint64_t>(n) * static_cast<uint64_t>(n)) / 2);
}

int64_t largest_of_exponent(int exponent) {
    // The largest n with n^2 < 2^(2 exponent + 1), of which the root is never an integer.
    return static_cast<int64_t>(std::sqrt(std::ldexp(1.0, 2 * exponent + 1)));
}

namespace {

// Whether texts of DeviceStamp::key() are of one device. What OpenCL calls the memory of a CPU is what the machine has
// at the moment, so that line is no part of the comparison there.
bool is_same_device(std::string_view a, std::string_view b) {
    constexpr std::string_view kTarget = "opencl\n";
    constexpr int kLinesBefore = 4;  // target, name, capability, compute units
    if (a == b || !a.starts_with(kTarget) || !b.starts_with(kTarget)) {
        return a == b;
    }
    const auto without_memory = [](std::string_view key) {
        size_t begin = 0;
        for (int line = 0; line < kLinesBefore; ++line) {
            begin = key.find('\n', begin) + 1;
        }
        return std::pair(key.substr(0, begin), key.substr(key.find('\n', begin)));
    };
    return without_memory(a) == without_memory(b);
}

}  // namespace

bool TuningFamily::operator==(const TuningFamily &other) const {
    return algorithm == other.algorithm && dtype == other.dtype && head_exponent == other.head_exponent &&
           group_exponent == other.group_exponent && hooks == other.hooks && target == other.target &&
           is_same_device(device, other.device);
}

TuningFamily family_of(const Problem &problem, hattn_algorithm algorithm, const TargetInfo *target) {
    return {algorithm,
            problem.k_dtype == HATTN_FLOAT32 ? problem.v_dtype : problem.k_dtype,
            size_exponent(std::max<int64_t>(1, std::max(problem.key_dim, problem.value_dim))),
            size_exponent(problem.group_size()),
            problem.hooks,
            target};
}

TuningCell cell_of(int64_t query_length, int64_t keys) {
    return {std::min(size_exponent(std::max<int64_t>(1, query_length)), kRowClasses - 1),
            std::min(size_exponent(std::max<int64_t>(1, keys)), kKeyClasses - 1)};
}

void TuningGrid::add(const TuningEntry &entry) {
    entries_.push_back(entry);
}

// Each entry goes to the cells that it is nearest to so far.
void TuningGrid::fill() {
    constexpr int kNone = std::numeric_limits<int>::max();
    std::array<int, kRowClasses * kKeyClasses> steps_of_nearest;
    steps_of_nearest.fill(kNone);
    nearest_.fill(-1);
    for (size_t i = 0; i < entries_.size(); ++i) {
        const TuningCell &cell = entries_[i].cell;
        const int last_rows = std::min(cell.rows + kMostRowSteps, kRowClasses - 1);
        const int last_keys = std::min(cell.keys + kMostKeySteps, kKeyClasses - 1);
        for (int rows = std::max(cell.rows - kMostRowSteps, 0); rows <= last_rows; ++rows) {
            for (int keys = std::max(cell.keys - kMostKeySteps, 0); keys <= last_keys; ++keys) {
                // Rows decide more than keys do.
                const int steps = 4 * std::abs(cell.rows - rows) + std::abs(cell.keys - keys);
                const auto at = static_cast<size_t>(rows * kKeyClasses + keys);
                if (steps < steps_of_nearest[at]) {
                    steps_of_nearest[at] = steps;
                    nearest_[at] = static_cast<int32_t>(i);
                }
            }
        }
    }
}

TuningTable::TuningTable(const std::vector<TuningEntry> &entries) : size_(entries.size()) {
    for (const TuningEntry &entry : entries) {
        // Files have the entries of a family one after the other, so it is the last one as a rule.
        auto grid = std::find_if(grids_.rbegin(), grids_.rend(),
                                 [&](const TuningGrid &other) { return other.family() == entry.family; });
        if (grid == grids_.rend()) {
            grids_.emplace_back(entry.family);
            grid = grids_.rbegin();
        }
        grid->add(entry);
        invariant_only_ = invariant_only_ && entry.invariant;
    }
    for (TuningGrid &grid : grids_) {
        grid.fill();
    }
}

size_t TuningTable::entries_of_device(const std::string &key) const {
    size_t count = 0;
    for (const TuningGrid &grid : grids_) {
        count += is_same_device(grid.family().device, key) ? grid.size() : 0;
    }
    return count;
}

TuningGrids TuningTable::find(const TuningFamily &family) const {
    if (family.dtype == HATTN_FLOAT32) {
        return {nearest(family), nullptr};
    }
    TuningFamily of_float32 = family;
    of_float32.dtype = HATTN_FLOAT32;
    return {nearest(family), nearest(of_float32)};
}

const TuningGrid *TuningTable::nearest(const TuningFamily &family) const {
    const TuningGrid *found = nullptr;
    int fewest = std::numeric_limits<int>::max();
    for (const TuningGrid &grid : grids_) {
        const TuningFamily &other = grid.family();
        if (other.target != family.target || !is_same_device(other.device, family.device) ||
            other.algorithm != family.algorithm || other.dtype != family.dtype ||
            (other.hooks != family.hooks && other.hooks != 0)) {
            continue;
        }
        const int steps = std::abs(other.head_exponent - family.head_exponent) +
                          4 * std::abs(other.group_exponent - family.group_exponent) +
                          (other.hooks != family.hooks ? 64 : 0);
        if (steps < fewest) {
            fewest = steps;
            found = &grid;
        }
    }
    return found;
}

}  // namespace hattn
