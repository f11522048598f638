// The table of a launch, a record for each unit, as kernels take it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

namespace hattn {

// How units follow each other: so many innermost ones, so many times, and all that so many times. Of the outermost ones
// the first `turned` start in reverse.
struct UnitOrder {
    int32_t inner = 0, middle = 1, outer = 1;
    bool grow = false;  // whether columns may grow
    int32_t turned = 0;

    // Of so many units, one after the other; or in an order, if that makes as many, for kernels whose columns_grow().
    static UnitOrder of(size_t count);
    static UnitOrder of(size_t count, int64_t inner, int64_t middle);
};

// Of every record the columns that are not the same in all, or do not grow by the same from each unit to the next in
// each of the three dimensions of an order. Most are or do, and the table, if there is anything in it, is copied to the
// device with each execute. Kernels are told where columns start, how they grow, and which are listed instead
// (schedules/gpu/unit_launch.h). For kernels whose columns may not grow, the whole first record comes before: to be
// told of it costs registers, of which these have none to spare (decision 0092).
class PackedUnits {
public:
    static constexpr size_t kSteps = 3;  // of a column: from one inner, middle, outer unit to the next
    static constexpr size_t kMostColumns = 32;

    template<typename Record>
    PackedUnits(std::span<const Record> records, const UnitOrder &order, std::pmr::memory_resource *host)
        : PackedUnits(reinterpret_cast<const int32_t *>(records.data()), records.size(), columns_of<Record>(), order,
                      host) {
        static_assert(columns_of<Record>() < kMostColumns, "columns are bits of a mask");
    }

    // They take what so many records do at most.
    static constexpr int64_t most_records(int64_t count) {
        return count + 1;
    }
    // Bit c: column c is listed.
    int32_t listed() const {
        return static_cast<int32_t>(listed_);
    }
    // Of the first record, every column.
    std::span<const int32_t> first() const {
        return {first_.data(), columns_};
    }
    // kSteps for each column, 0 for those that are listed.
    std::span<const int32_t> steps() const {
        return {steps_.data(), kSteps * columns_};
    }
    const std::pmr::vector<int32_t> &words() const {
        return words_;
    }

private:
    template<typename Record>
    static constexpr size_t columns_of() {
        return sizeof(Record) / sizeof(int32_t);
    }
    PackedUnits(const int32_t *records, size_t count, size_t columns, const UnitOrder &order,
                std::pmr::memory_resource *host);

    const size_t columns_;
    uint32_t listed_ = 0;
    std::array<int32_t, kMostColumns> first_ = {};
    std::array<int32_t, kSteps *kMostColumns> steps_ = {};
    std::pmr::vector<int32_t> words_;
};

}  // namespace hattn
