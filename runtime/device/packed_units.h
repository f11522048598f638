// The table of a launch, a record for each unit, as kernels take it.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

namespace hattn {

// The first record as a whole, then of every record the columns that are not the same in all: units of a launch have
// most in common, and the table is copied to the device with each execute. Kernels are told which columns those are
// (schedules/gpu/unit_launch.h).
class PackedUnits {
public:
    template<typename Record>
    PackedUnits(std::span<const Record> records, std::pmr::memory_resource *host)
        : PackedUnits(reinterpret_cast<const int32_t *>(records.data()), records.size(), columns_of<Record>(), host) {
        static_assert(columns_of<Record>() < 32, "columns are bits of a mask");
    }

    // They take what so many records do at most.
    static constexpr int64_t most_records(int64_t count) {
        return count + 1;
    }
    // Bit c: column c differs.
    int32_t differing() const {
        return static_cast<int32_t>(differing_);
    }
    const std::pmr::vector<int32_t> &words() const {
        return words_;
    }

private:
    template<typename Record>
    static constexpr size_t columns_of() {
        return sizeof(Record) / sizeof(int32_t);
    }
    PackedUnits(const int32_t *records, size_t count, size_t columns, std::pmr::memory_resource *host);

    uint32_t differing_ = 0;
    std::pmr::vector<int32_t> words_;
};

}  // namespace hattn
