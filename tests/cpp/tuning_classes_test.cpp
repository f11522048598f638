// Classes of sizes, the look-up among them, and the tunings that the library ships: behind the interface.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "runtime/kernel_registry.h"
#include "runtime/tuning.h"
#include "runtime/tuning_defaults.h"
#include "runtime/tuning_json.h"
#include "runtime/tuning_text.h"

namespace {

using namespace hattn;

TEST(SizeClass, IsTheNearestPowerOfTwo) {
    for (int64_t n = 1; n < 100000; n = n < 2000 ? n + 1 : n + 997) {
        EXPECT_EQ(size_exponent(n), std::lround(std::log2(static_cast<double>(n)))) << n;
    }
    EXPECT_EQ(size_exponent(int64_t{1} << 29), 29);
}

TEST(SizeClass, EndsWhereTheNextOneBegins) {
    for (int exponent = 0; exponent < 29; ++exponent) {
        const int64_t largest = largest_of_exponent(exponent);
        EXPECT_EQ(size_exponent(largest), exponent);
        EXPECT_EQ(size_exponent(largest + 1), exponent + 1);
    }
}

TEST(SizeClass, LastOnesHoldAllAbove) {
    const TuningCell cell = cell_of(int64_t{1} << 29, int64_t{1} << 29);
    EXPECT_EQ(cell.rows, kRowClasses - 1);
    EXPECT_EQ(cell.keys, kKeyClasses - 1);
}

TuningEntry entry_at(int rows, int keys, const TuningFamily &family = {}) {
    TuningEntry entry;
    entry.family = family;
    entry.cell = {rows, keys};
    entry.split_keys = 100 * rows + keys;  // tells entries apart
    return entry;
}

// Against a search over all entries.
TEST(TuningGrid, FindsTheNearestWithinItsReach) {
    const std::vector<TuningEntry> entries = {entry_at(0, 10), entry_at(3, 3), entry_at(4, 9), entry_at(9, 12)};
    const TuningTable table(entries);
    const TuningGrid *grid = table.find({}).own;
    ASSERT_NE(grid, nullptr);
    for (int rows = 0; rows < kRowClasses; ++rows) {
        for (int keys = 0; keys < kKeyClasses; ++keys) {
            const TuningEntry *found = grid->find({rows, keys});
            int nearest = 1000;
            for (const TuningEntry &entry : entries) {
                const int row_steps = std::abs(entry.cell.rows - rows), key_steps = std::abs(entry.cell.keys - keys);
                if (row_steps <= TuningGrid::kMostRowSteps && key_steps <= TuningGrid::kMostKeySteps) {
                    nearest = std::min(nearest, 4 * row_steps + key_steps);
                }
            }
            ASSERT_EQ(found != nullptr, nearest < 1000) << rows << ", " << keys;
            if (found) {
                EXPECT_EQ(4 * std::abs(found->cell.rows - rows) + std::abs(found->cell.keys - keys), nearest);
            }
        }
    }
}

TEST(TuningTable, TakesTheNearestFamilyOfItsKind) {
    const TargetInfo &generic = *find_target("generic");
    const TuningFamily wanted{HATTN_ALGORITHM_AUTO, HATTN_FLOAT32, 7, 2, hook_bit("mask"), &generic};
    const auto finds = [&](const std::vector<TuningFamily> &families, size_t expected) {
        std::vector<TuningEntry> entries;
        for (const TuningFamily &family : families) {
            entries.push_back(entry_at(0, 10, family));
        }
        const TuningTable table(entries);
        const TuningGrid *grid = table.find(wanted).own;
        return expected == families.size() ? grid == nullptr : grid && grid->family() == families[expected];
    };
    TuningFamily plain = wanted, far = wanted, grouped = wanted, other = wanted;
    plain.hooks = 0;
    far.head_exponent = 5;
    grouped.group_exponent = 0;
    other.hooks = hook_bit("bias");
    EXPECT_TRUE(finds({plain, wanted, far}, 1));
    EXPECT_TRUE(finds({plain, grouped, far}, 2)) << "head sizes are nearer than groups, and hooks the farthest";
    EXPECT_TRUE(finds({plain}, 0));
    EXPECT_TRUE(finds({other}, 1)) << "other hooks";
    TuningFamily asked_for = wanted, dtype = wanted, target = wanted;
    asked_for.algorithm = HATTN_ALGORITHM_FLASH;
    dtype.dtype = HATTN_FLOAT16;
    target.target = nullptr;
    EXPECT_TRUE(finds({asked_for, dtype, target}, 3));
}

TEST(TuningTable, IsAskedForFloat32WhereItHasNothingNearInTheDtype) {
    TuningFamily wanted;
    wanted.dtype = HATTN_INT8;
    TuningFamily float16 = wanted;
    float16.dtype = HATTN_FLOAT16;
    const TuningTable table({entry_at(0, 10, wanted), entry_at(0, 10), entry_at(6, 10), entry_at(9, 9, float16)});
    const auto dtype_at = [&](const TuningFamily &family, int rows, int keys) {
        const TuningEntry *entry = table.find(family).find({rows, keys});
        return entry ? entry->family.dtype : HATTN_BOOL;
    };
    EXPECT_EQ(dtype_at(wanted, 0, 10), HATTN_INT8);
    EXPECT_EQ(dtype_at(wanted, 1, 9), HATTN_INT8) << "near, in its own dtype";
    EXPECT_EQ(dtype_at(wanted, 6, 10), HATTN_FLOAT32);
    EXPECT_EQ(dtype_at(wanted, 9, 9), HATTN_BOOL) << "of no other dtype";
    EXPECT_EQ(dtype_at({}, 0, 10), HATTN_FLOAT32);
    EXPECT_EQ(dtype_at({}, 9, 9), HATTN_BOOL);
    wanted.dtype = HATTN_BFLOAT16;
    EXPECT_EQ(dtype_at(wanted, 0, 10), HATTN_FLOAT32) << "there is no grid of the dtype";
}

// A file that did not parse would silently be none.
TEST(TuningDefaults, AreAllUnderstood) {
    EXPECT_FALSE(tuning_defaults().empty());
    for (const char *text : tuning_defaults()) {
        EXPECT_NO_THROW(parse_tuning(text, nullptr));
    }
}

TEST(TuningDefaults, NameKernelsThatExist) {
    for (const char *text : tuning_defaults()) {
        for (const TuningEntry &entry : parse_tuning(text, nullptr).entries) {
            if (entry.algorithm == HATTN_ALGORITHM_AUTO) {
                continue;  // the rule stays
            }
            const KernelKind kinds[] = {KernelKind::kNaive, KernelKind::kFlash, KernelKind::kSplitKv,
                                        KernelKind::kUnfusedScores};
            const auto kernels = find_kernels(
                *entry.family.target, kinds[static_cast<size_t>(entry.algorithm) - 1],
                entry.family.dtype == HATTN_FLOAT32 ? KeyStorage::kFloat32 : KeyStorage::kAny, entry.family.hooks);
            EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(), [&](const KernelInfo *kernel) {
                return kernel->tile == entry.tile;
            })) << class_json(entry.family, entry.cell);
        }
    }
}

}  // namespace
