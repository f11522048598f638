// What is packed of a launch's table, read back as kernels read it.
#include "runtime/device/packed_units.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <limits>
#include <memory_resource>
#include <span>
#include <tuple>
#include <vector>

#include "runtime/device/paired_units.h"

namespace hattn {
namespace {

struct Record {
    int32_t a, b, c, d;
};
constexpr size_t kColumns = sizeof(Record) / sizeof(int32_t);

class PackedUnitsTest : public ::testing::Test {
protected:
    static PackedUnits pack(const std::vector<Record> &records, const UnitOrder &order) {
        return {std::span(records), order, std::pmr::get_default_resource()};
    }
    static PackedUnits pack(const std::vector<Record> &records) {
        return pack(records, UnitOrder::of(records.size()));
    }

    // As schedules/gpu/unit_launch.cpp has it.
    static int32_t column(const PackedUnits &units, const UnitOrder &order, const std::array<int32_t, 3> &block,
                          unsigned column) {
        const auto listed = static_cast<uint32_t>(units.listed());
        const size_t record = static_cast<size_t>((block[2] * order.middle + block[1]) * order.inner + block[0]);
        const size_t before = std::popcount(listed & ((1u << column) - 1)), width = std::popcount(listed);
        const bool is_listed = (listed >> column & 1) != 0;
        const size_t of_first = order.grow ? 0 : kColumns;
        int32_t value = is_listed    ? units.words()[of_first + record * width + before]
                        : order.grow ? units.first()[column]
                                     : units.words()[column];
        for (size_t i = 0; i < PackedUnits::kSteps; ++i) {
            value += units.steps()[PackedUnits::kSteps * column + i] * block[i];
        }
        return value;
    }

    static void expect_all(const PackedUnits &units, const UnitOrder &order, const std::vector<Record> &records) {
        size_t n = 0;
        for (int32_t z = 0; z < order.outer; ++z) {
            for (int32_t y = 0; y < order.middle; ++y) {
                for (int32_t x = 0; x < order.inner; ++x, ++n) {
                    const std::array<int32_t, kColumns> expected = {records[n].a, records[n].b, records[n].c,
                                                                    records[n].d};
                    for (unsigned c = 0; c < kColumns; ++c) {
                        EXPECT_EQ(column(units, order, {x, y, z}, c), expected[c])
                            << "record " << n << ", column " << c;
                    }
                }
            }
        }
        EXPECT_EQ(n, records.size());
    }
};

TEST_F(PackedUnitsTest, HoldsColumnsThatDifferForEveryRecordAndTheOthersOnce) {
    const std::vector<Record> records = {{7, -1, 3, 0}, {7, -2, 3, 0}, {7, -2, 3, 5}};
    const PackedUnits units = pack(records);
    EXPECT_EQ(units.listed(), 0b1010);
    EXPECT_EQ(units.words().size(), kColumns + records.size() * 2);
    expect_all(units, UnitOrder::of(records.size()), records);
}

TEST_F(PackedUnitsTest, OfEqualRecordsListsNothing) {
    const std::vector<Record> equal(2, {1, 2, 3, 4});
    const PackedUnits units = pack(equal);
    EXPECT_EQ(units.listed(), 0);
    EXPECT_EQ(units.words(), (std::pmr::vector<int32_t>{1, 2, 3, 4}));
    const PackedUnits grown = pack(equal, UnitOrder::of(2, 2, 1));
    EXPECT_EQ(grown.listed(), 0);
    EXPECT_TRUE(grown.words().empty());
    EXPECT_EQ(std::vector<int32_t>(grown.first().begin(), grown.first().end()), (std::vector<int32_t>{1, 2, 3, 4}));
}

TEST_F(PackedUnitsTest, OfKernelsThatDoNotComputeColumnsListsThoseThatGrow) {
    const std::vector<Record> records = {{1, 10, 0, 0}, {1, 20, 0, 0}, {1, 30, 0, 0}};
    const PackedUnits units = pack(records);
    EXPECT_EQ(units.listed(), 0b0010);
    expect_all(units, UnitOrder::of(records.size()), records);
}

TEST_F(PackedUnitsTest, HasStepsOfColumnsThatGrowInEachDimension) {
    const UnitOrder order = UnitOrder::of(12, 3, 2);
    EXPECT_EQ(order.outer, 2);
    std::vector<Record> records;
    for (int32_t n = 0; n < 12; ++n) {
        const int32_t x = n % 3, y = n / 3 % 2, z = n / 6;
        records.push_back({5 + 100 * x - 7 * y + z, -y, 40 - 4 * z, n == 8 ? 1 : 0});
    }
    const PackedUnits units = pack(records, order);
    EXPECT_EQ(units.listed(), 0b1000);
    EXPECT_EQ(units.words().size(), records.size());
    EXPECT_EQ(std::vector<int32_t>(units.steps().begin(), units.steps().end()),
              (std::vector<int32_t>{100, -7, 1, 0, -1, 0, 0, 0, -4, 0, 0, 0}));
    expect_all(units, order, records);
}

TEST_F(PackedUnitsTest, ListsAColumnOfWhichOneRecordIsAnother) {
    const UnitOrder order = UnitOrder::of(8, 2, 2);
    for (size_t other = 0; other < 8; ++other) {
        std::vector<Record> records;
        for (int32_t n = 0; n < 8; ++n) {
            records.push_back({n, 2 * n, 3, static_cast<size_t>(n) == other ? n + 1 : n});
        }
        const PackedUnits units = pack(records, order);
        EXPECT_EQ(units.listed(), 0b1000) << "record " << other;
        expect_all(units, order, records);
    }
}

TEST_F(PackedUnitsTest, ListsColumnsWhoseStepsAddUpToMoreThanAnInteger) {
    constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
    const UnitOrder order = UnitOrder::of(4, 2, 1);
    const std::vector<Record> records = {
        {-kMost, 0, 0, kMost - 3}, {kMost, 1, 0, kMost - 2}, {-kMost, 2, 0, kMost - 1}, {kMost, 3, 0, kMost}};
    const PackedUnits units = pack(records, order);
    EXPECT_EQ(units.listed(), 0b1001);
    expect_all(units, order, records);
}

TEST_F(PackedUnitsTest, UnitsThatAreNoWholeOrderFollowOneAnother) {
    for (const UnitOrder &order : {UnitOrder::of(7, 3, 2), UnitOrder::of(6, 4, 2), UnitOrder::of(1 << 20, 1, 1)}) {
        EXPECT_EQ(order.middle, 1);
        EXPECT_EQ(order.outer, 1);
        EXPECT_TRUE(order.grow);
    }
    EXPECT_EQ(UnitOrder::of(7, 3, 2).inner, 7);
    const std::vector<Record> records = {{0, 0, 0, 0}, {3, 1, 0, 0}, {6, 1, 0, 0}};
    const PackedUnits units = pack(records, UnitOrder::of(3, 2, 1));
    EXPECT_EQ(units.listed(), 0b0010);
    expect_all(units, UnitOrder::of(3, 2, 1), records);
}

TEST_F(PackedUnitsTest, TakesNoMoreThanItIsSaidTo) {
    EXPECT_LE(pack({}, UnitOrder::of(0, 3, 2)).words().size(), PackedUnits::most_records(0) * kColumns);
    const PackedUnits none = pack({}), all = pack({{1, 2, 3, 4}, {5, 6, 7, 8}});
    EXPECT_LE(none.words().size(), PackedUnits::most_records(0) * kColumns);
    EXPECT_EQ(all.words().size(), PackedUnits::most_records(2) * kColumns);
    const PackedUnits grown = pack({{1, 2, 3, 4}, {5, 6, 7, 8}}, UnitOrder::of(2, 2, 1));
    EXPECT_TRUE(grown.words().empty());
}

// Blocks in the order in which they start, by the unit that each computes.
std::vector<int32_t> units_in_order(const UnitOrder &order) {
    std::vector<int32_t> units;
    for (int32_t start = 0; start < order.inner * order.middle * order.outer; ++start) {
        units.push_back(static_cast<int32_t>(unit_at(order, start)));
    }
    return units;
}

TEST(UnitsInPairs, LongestOnesShareComputeUnitsWithShortestOnes) {
    const std::vector<int32_t> units = units_in_order(in_pairs(UnitOrder::of(7), 4));
    EXPECT_EQ(units, (std::vector<int32_t>{3, 2, 1, 0, 4, 5, 6}));  // 3 with 4, 2 with 5, 1 with 6, and 0 alone
}

TEST(UnitsInPairs, KeepTheirDimensions) {
    const UnitOrder order = in_pairs(UnitOrder::of(24, 2, 2), 13);
    EXPECT_EQ(std::tuple(order.inner, order.middle, order.outer, order.turned), std::tuple(2, 2, 6, 3));
    EXPECT_TRUE(order.grow);
    EXPECT_EQ(units_in_order(order), (std::vector<int32_t>{8,  9,  10, 11, 4,  5,  6,  7,  0,  1,  2,  3,
                                                           12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}));
}

TEST(UnitsInPairs, AreThoseOfTwoForEachComputeUnit) {
    for (const size_t count : {0, 1, 4, 9, 20}) {
        const UnitOrder order = in_pairs(UnitOrder::of(count), 4);
        EXPECT_EQ(order.turned, 0) << count;
        EXPECT_EQ(order.inner, static_cast<int32_t>(count));
    }
    EXPECT_EQ(in_pairs(UnitOrder::of(5), 4).turned, 4);
    EXPECT_EQ(in_pairs(UnitOrder::of(8), 4).turned, 4);
    EXPECT_EQ(in_pairs(UnitOrder::of(8), 0).turned, 0) << "a compute unit does not hold two";
}

}  // namespace
}  // namespace hattn
