// How rows of a head are cut into tiles of flash: smaller ones at the end compute less, and the same.
#include "runtime/row_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "problem.h"
#include "runtime/cpu_features.h"
#include "support/json_text.h"
#include "support/run.h"
#include "support/some_desc.h"

namespace {

using namespace hattn;

KernelInfo kernel_of(int rows) {
    KernelInfo kernel{};
    kernel.tile.rows = rows;
    return kernel;
}

TEST(RowTiles, HoldEachRowOnce) {
    const KernelInfo usual = kernel_of(24), last = kernel_of(16);
    for (const int64_t heads : {1, 3}) {
        for (int64_t rows = 1; rows <= 100; ++rows) {
            for (const int64_t last_tiles : {0, 1, 2}) {
                Choice choice{HATTN_ALGORITHM_FLASH, &usual, nullptr, heads, 0};
                choice.last_kernel = last_tiles > 0 ? &last : nullptr;
                choice.last_tiles = last_tiles;
                const RowTiles tiles(choice, rows);
                if (!tiles.hold_all()) {
                    EXPECT_GT(last_tiles, 0);
                    continue;
                }
                int64_t next = 0, computed = 0;
                for (int64_t i = 0; i < tiles.count(); ++i) {
                    const RowTile tile = tiles[i];
                    EXPECT_EQ(tile.row, next) << rows << " rows, " << last_tiles << " last tiles";
                    EXPECT_GT(tile.rows, 0) << rows << " rows, " << last_tiles << " last tiles";
                    EXPECT_LE(tile.rows * heads, tile.kernel->tile.rows);
                    EXPECT_EQ(tile.kernel == &last, i >= tiles.count() - last_tiles);
                    next += tile.rows;
                    computed += tile.kernel->tile.rows;
                }
                EXPECT_EQ(next, rows);
                EXPECT_EQ(tiles.computed_rows(), computed);
            }
        }
    }
}

// Rows of what a target has of flash over float32 with as many keys at a time, the usual tile first.
struct LastTiles {
    const char *target;
    int64_t keys;
    std::vector<int64_t> rows;
    std::vector<int64_t> filled;  // rows for which there is nothing to gain
    std::map<int64_t, std::vector<int64_t>> ended;  // rows that end in tiles of so many
    std::vector<int64_t> shared;                    // rows of each of two heads, of which some are left
};

bool has_tiles(const LastTiles &tiles) {
    // AMD's CPUs have others of AVX-512.
    const bool is_made_for_others = std::string(tiles.target) == "x86-avx512" && cpu_has_features("amd");
    return !is_made_for_others && test::new_context("target=" + std::string(tiles.target)).outcome.ok();
}

nlohmann::json planned(hattn_attention_desc desc, const std::string &force) {
    desc.algorithm = HATTN_ALGORITHM_FLASH;
    test::ContextPtr context = test::make_context(1, force);
    return test::explanation_of(test::make_plan(context.get(), desc).get());
}

nlohmann::json planned(int64_t rows, int64_t keys, const std::string &force, hattn_dtype dtype = HATTN_FLOAT32) {
    hattn_attention_desc desc = test::some_desc(rows, keys);
    desc.dtype = dtype;
    desc.query_heads = desc.kv_heads = 2;
    return planned(desc, force);
}

// Rows of the tile that takes the last ones; 0: the usual one does.
int64_t rows_of_last(int64_t rows, int64_t keys, const std::string &force, hattn_dtype dtype = HATTN_FLOAT32) {
    const nlohmann::json last = planned(rows, keys, force, dtype).at("last_kernel");
    if (last.is_null()) {
        return 0;
    }
    const std::string name = last, mark = "_r";
    return std::stoll(name.substr(name.find(mark) + mark.size()));
}

class LastRows : public testing::TestWithParam<LastTiles> {
protected:
    void SetUp() override {
        if (!has_tiles(GetParam())) {
            GTEST_SKIP() << "this CPU has no such tiles of " << GetParam().target;
        }
    }

    const std::string force_ = "target=" + std::string(GetParam().target);
};

TEST_P(LastRows, GoToTheTilesThatComputeFewest) {
    const auto &[target, keys, tiles, filled, ended, shared] = GetParam();
    for (int64_t rows = 1; rows <= 4 * tiles.front(); ++rows) {
        // With one or two tiles of another kind at the end, in no more tiles.
        const int64_t count = (rows + tiles.front() - 1) / tiles.front();
        int64_t least = count * tiles.front();
        for (const int64_t last : tiles) {
            for (int64_t ends = 1; ends <= std::min<int64_t>(count, 2); ++ends) {
                const int64_t computed = (count - ends) * tiles.front() + ends * last;
                least = computed >= rows ? std::min(least, computed) : least;
            }
        }
        const int64_t last = rows_of_last(rows, keys, force_);
        if (last == 0) {
            EXPECT_EQ(least, count * tiles.front()) << rows << " rows";
            continue;
        }
        const auto computed = [&](int64_t ends) { return (count - ends) * tiles.front() + ends * last; };
        EXPECT_TRUE(computed(1) == least || computed(2) == least)
            << rows << " rows, the last ones in tiles of " << last;
    }
    for (const int64_t rows : filled) {
        EXPECT_EQ(rows_of_last(rows, keys, force_), 0) << rows << " rows";
    }
    for (const auto &[last, all_rows] : ended) {
        for (const int64_t rows : all_rows) {
            EXPECT_EQ(rows_of_last(rows, keys, force_), last) << rows << " rows";
        }
    }
}

TEST_P(LastRows, StayInTheTileThatIsForced) {
    const int64_t rows = 40, keys = GetParam().keys;
    ASSERT_NE(rows_of_last(rows, keys, force_), 0);
    const std::string kernel = planned(rows, keys, force_).at("kernel");
    EXPECT_EQ(planned(rows, keys, "kernel=" + kernel).at("last_kernel"), nullptr);
}

TEST_P(LastRows, HaveTheBitsOfTheUsualTile) {
    test::ContextPtr context = test::make_context(1, force_);
    for (const int64_t rows : GetParam().shared) {
        for (const bool has_bias : {false, true}) {
            cases::Case c;
            c.name = "last_rows";
            c.query_heads = 4;
            c.kv_heads = 2;
            c.query_length = rows;
            c.kv_length = 300;
            c.key_dim = c.value_dim = 40;
            c.causal = true;
            if (has_bias) {
                c.bias = cases::varying("hqk");
            }
            cases::Problem problem(c);
            ASSERT_TRUE(test::run(context.get(), problem, HATTN_ALGORITHM_FLASH).ok());
            const std::vector<float> found = test::output_values(problem);
            const nlohmann::json plan = planned(problem.desc, force_);
            ASSERT_FALSE(plan.at("last_kernel").is_null()) << rows << " rows";
            test::ContextPtr forced = test::make_context(1, "kernel=" + plan.at("kernel").get<std::string>());
            ASSERT_TRUE(test::run(forced.get(), problem, HATTN_ALGORITHM_FLASH).ok());
            EXPECT_TRUE(test::same_bits(test::output_values(problem), found)) << rows << " rows";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Of, LastRows,
                         testing::Values(LastTiles{"x86-avx2",
                                                   300,
                                                   {24, 16},
                                                   {24, 240, 17, 23, 41 + 24, 47},
                                                   {{16, {1, 16, 25, 32, 33, 40, 64, 256, 512}}},
                                                   {26, 40, 64, 100}},
                                         LastTiles{"x86-avx512",
                                                   300,
                                                   {64, 48, 32},
                                                   {64, 49, 128, 128 + 50},
                                                   {{32, {1, 32, 65, 96, 150}}, {48, {33, 48, 100, 300}}},
                                                   {40, 75, 100}}),
                         [](const auto &of) { return std::string(of.param.target).substr(4); });

// Over stored types and more than 1024 keys the usual tile of AVX2 has 48 rows.
TEST(LastRowsOverStoredTypes, GoToSmallerTiles) {
    const std::string force = "target=x86-avx2";
    if (!test::new_context(force).outcome.ok()) {
        GTEST_SKIP() << "this CPU has no AVX2";
    }
    EXPECT_EQ(rows_of_last(150, 2048, force, HATTN_FLOAT16), 16);
    EXPECT_EQ(rows_of_last(96 + 20, 2048, force, HATTN_FLOAT16), 24);
    EXPECT_EQ(rows_of_last(96 + 32, 2048, force, HATTN_FLOAT16), 0);
}

// Of a tile that goes in bands those without rows are left out: what is left gives the bits of a full tile.
TEST(RowsInBands, HaveTheBitsOfAFullTile) {
    const std::string force = "kernel=amx_float32_flash_x86_avx512_r256k128v1u16d16";
    const test::NewContext created = test::new_context(force);
    if (!created.outcome.ok()) {
        GTEST_SKIP() << created.outcome.text();
    }
    cases::Case c;
    c.name = "bands";
    c.query_heads = c.kv_heads = 1;
    c.query_length = 256;
    c.kv_length = 400;
    c.key_dim = c.value_dim = 64;
    cases::Problem full(c);
    ASSERT_TRUE(test::run(created.context.get(), full, HATTN_ALGORITHM_FLASH).ok());
    const std::vector<float> expected = test::output_values(full);
    for (const int64_t rows : {1, 31, 32, 33, 40, 97, 225}) {
        c.query_length = rows;
        cases::Problem problem(c);
        problem.k = full.k;
        problem.v = full.v;
        std::copy_n(full.q.floats(), rows * c.key_dim, problem.q.floats());
        problem.bind();
        ASSERT_TRUE(test::run(created.context.get(), problem, HATTN_ALGORITHM_FLASH).ok());
        const std::vector<float> found = test::output_values(problem);
        const auto elements = static_cast<ptrdiff_t>(rows * c.value_dim);
        const auto lse = expected.begin() + c.value_dim * 256;
        std::vector<float> of_full(expected.begin(), expected.begin() + elements);
        of_full.insert(of_full.end(), lse, lse + static_cast<ptrdiff_t>(rows));
        EXPECT_TRUE(test::same_bits(found, of_full)) << rows << " rows";
    }
}

}  // namespace
