// What is packed of a launch's table, read back as kernels read it.
#include "runtime/device/packed_units.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <memory_resource>
#include <span>
#include <vector>

namespace hattn {
namespace {

struct Record {
    int32_t a, b, c, d;
};

class PackedUnitsTest : public ::testing::Test {
protected:
    PackedUnits pack(const std::vector<Record> &records) {
        return {std::span(records), std::pmr::get_default_resource()};
    }
    // As schedules/gpu/unit_launch.cpp has it.
    static int32_t column(const PackedUnits &units, size_t record, unsigned column) {
        const auto differing = static_cast<uint32_t>(units.differing());
        if (!(differing >> column & 1)) {
            return units.words()[column];
        }
        const size_t before = std::popcount(differing & ((1u << column) - 1)), width = std::popcount(differing);
        return units.words()[kColumns + record * width + before];
    }
    static constexpr size_t kColumns = sizeof(Record) / sizeof(int32_t);
};

TEST_F(PackedUnitsTest, HoldsColumnsThatDifferForEveryRecordAndTheOthersOnce) {
    const std::vector<Record> records = {{7, -1, 3, 0}, {7, -2, 3, 0}, {7, -2, 3, 5}};
    const PackedUnits units = pack(records);
    EXPECT_EQ(units.differing(), 0b1010);
    EXPECT_EQ(units.words().size(), kColumns + records.size() * 2);
    for (size_t n = 0; n < records.size(); ++n) {
        const std::array<int32_t, kColumns> expected = {records[n].a, records[n].b, records[n].c, records[n].d};
        for (unsigned c = 0; c < kColumns; ++c) {
            EXPECT_EQ(column(units, n, c), expected[c]) << "record " << n << ", column " << c;
        }
    }
}

TEST_F(PackedUnitsTest, OfEqualRecordsIsOne) {
    const PackedUnits units = pack({{1, 2, 3, 4}, {1, 2, 3, 4}});
    EXPECT_EQ(units.differing(), 0);
    EXPECT_EQ(units.words(), (std::pmr::vector<int32_t>{1, 2, 3, 4}));
}

TEST_F(PackedUnitsTest, TakesNoMoreThanItIsSaidTo) {
    const PackedUnits none = pack({}), all = pack({{1, 2, 3, 4}, {5, 6, 7, 8}});
    EXPECT_LE(none.words().size(), PackedUnits::most_records(0) * kColumns);
    EXPECT_EQ(all.words().size(), PackedUnits::most_records(2) * kColumns);
}

}  // namespace
}  // namespace hattn
