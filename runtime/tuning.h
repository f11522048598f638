// The tuning database in memory: measured decisions by problem class, and the look-up that plans use.
//
// A class is a family (what a plan fixes: algorithm asked for, dtype, head size, heads per kv head, hooks, target) and
// a cell (rows and keys of one sequence). Threads and batch are no part of it, since decisions may change the last bits
// of results and results may not depend on either; see docs/tuning.md.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device_table.h"
#include "hattn/hattn.h"
#include "kernel_table.h"
#include "problem.h"

namespace hattn {

// Sizes are powers of two, each standing for the sizes around it on a logarithmic scale.
inline constexpr int kRowClasses = 14;  // 1 .. 8192 rows of a head; the last one for all above too
inline constexpr int kKeyClasses = 17;  // 1 .. 65536 keys; likewise

// The power of two next to n >= 1 on a logarithmic scale, as an exponent.
int size_exponent(int64_t n);
// The largest n with that exponent.
int64_t largest_of_exponent(int exponent);

struct TuningFamily {
    hattn_algorithm algorithm = HATTN_ALGORITHM_AUTO;  // asked for
    hattn_dtype dtype = HATTN_FLOAT32;
    int head_exponent = 0;   // of the larger head dimension
    int group_exponent = 0;  // of query heads per kv head
    uint32_t hooks = 0;
    const TargetInfo *target = nullptr;  // null for a device
    std::string device = {};             // which one, DeviceStamp::key(); empty for the CPU

    bool operator==(const TuningFamily &other) const;
};
TuningFamily family_of(const Problem &problem, hattn_algorithm algorithm, const TargetInfo *target);

struct TuningCell {
    int rows = 0, keys = 0;  // exponents, within kRowClasses and kKeyClasses
};
TuningCell cell_of(int64_t query_length, int64_t keys);

// What was measured to be best for a class.
struct TuningEntry {
    TuningFamily family;
    TuningCell cell;
    hattn_algorithm algorithm = HATTN_ALGORITHM_AUTO;  // auto: nothing beat the default, which stays
    KernelTile tile{};
    DeviceTile device_tile{};  // of entries for devices, instead
    int64_t split_keys = 0;    // keys per split; 0: the algorithm does not split
    int64_t heads = 1;         // query heads of one kv head that share a tile
    double gain = 1.0;         // measured speed over that of the default
    bool invariant = false;    // results have the bits of the default's
};

// Entries of one family, every cell filled with its nearest entry.
class TuningGrid {
public:
    explicit TuningGrid(const TuningFamily &family) : family_(family) {}
    const TuningFamily &family() const {
        return family_;
    }
    void add(const TuningEntry &entry);
    void fill();  // after the last add()
    size_t size() const {
        return entries_.size();
    }

    // Null where no entry is near: more than kMostRowSteps or kMostKeySteps powers of two away.
    const TuningEntry *find(const TuningCell &cell) const {
        const int index = nearest_[static_cast<size_t>(cell.rows * kKeyClasses + cell.keys)];
        return index < 0 ? nullptr : &entries_[static_cast<size_t>(index)];
    }

    static constexpr int kMostRowSteps = 1;
    static constexpr int kMostKeySteps = 2;

private:
    TuningFamily family_;
    std::vector<TuningEntry> entries_;
    std::array<int32_t, kRowClasses * kKeyClasses> nearest_{};
};

// Where a set of entries has those for a problem: in the grid of its family, and what that is silent about in
// float32's.
struct TuningGrids {
    const TuningGrid *own = nullptr, *float32 = nullptr;  // null where the set has none; for float32 the second one too

    const TuningEntry *find(const TuningCell &cell) const {
        const TuningEntry *entry = own ? own->find(cell) : nullptr;
        return entry || !float32 ? entry : unless_naive(float32->find(cell));
    }

private:
    // Which is not as good where keys have to be converted, see docs/decisions/0033.
    static const TuningEntry *unless_naive(const TuningEntry *entry) {
        return entry && entry->algorithm == HATTN_ALGORITHM_NAIVE ? nullptr : entry;
    }
};

// A set of entries: those of this machine, or those the library comes with.
class TuningTable {
public:
    TuningTable() = default;
    explicit TuningTable(const std::vector<TuningEntry> &entries);

    // The grids of the family or of the nearest ones: any with its algorithm and target, and either its hooks or none.
    TuningGrids find(const TuningFamily &family) const;
    size_t size() const {
        return size_;
    }
    size_t entries_of_device(const std::string &key) const;  // DeviceStamp::key()
    bool has_invariant_only() const {
        return size_ > 0 && invariant_only_;
    }

private:
    const TuningGrid *nearest(const TuningFamily &family) const;  // of its dtype; null if there is none

    std::vector<TuningGrid> grids_;
    size_t size_ = 0;
    bool invariant_only_ = true;
};

}  // namespace hattn
