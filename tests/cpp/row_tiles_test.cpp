// How rows of a head are cut into tiles of flash: smaller ones at the end compute less, and the same.
#include "runtime/row_tiles.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "problem.h"
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

class LastRows : public testing::Test {
protected:
    void SetUp() override {
        if (!test::new_context("target=x86-avx2").outcome.ok()) {
            GTEST_SKIP() << "this CPU has no AVX2";
        }
    }

    static nlohmann::json planned(hattn_attention_desc desc, const std::string &force) {
        desc.algorithm = HATTN_ALGORITHM_FLASH;
        test::ContextPtr context = test::make_context(1, force);
        return test::explanation_of(test::make_plan(context.get(), desc).get());
    }

    static nlohmann::json planned(int64_t rows, int64_t keys, hattn_dtype dtype = HATTN_FLOAT32,
                                  const std::string &force = "target=x86-avx2") {
        hattn_attention_desc desc = test::some_desc(rows, keys);
        desc.dtype = dtype;
        desc.query_heads = desc.kv_heads = 2;
        return planned(desc, force);
    }

    // Rows of the tile that takes the last ones; 0: the usual one does.
    static int rows_of_last(int64_t rows, int64_t keys, hattn_dtype dtype = HATTN_FLOAT32) {
        const nlohmann::json last = planned(rows, keys, dtype).at("last_kernel");
        if (last.is_null()) {
            return 0;
        }
        const std::string name = last, mark = "_r";
        return std::stoi(name.substr(name.find(mark) + mark.size()));
    }
};

// Of AVX2 the usual tile has 24 rows, over stored types and more than 1024 keys 48; the smallest one 16.
TEST_F(LastRows, GoToSmallerTilesWhereTheseComputeLess) {
    for (const int64_t full : {24, 240, 17, 23, 41 + 24, 47}) {
        EXPECT_EQ(rows_of_last(full, 300), 0) << full;
    }
    for (const int64_t rows : {1, 16, 25, 32, 33, 40, 64, 256, 512}) {
        EXPECT_EQ(rows_of_last(rows, 300), 16) << rows;
    }
    EXPECT_EQ(rows_of_last(150, 2048, HATTN_FLOAT16), 16);
    EXPECT_EQ(rows_of_last(96 + 20, 2048, HATTN_FLOAT16), 24);
    EXPECT_EQ(rows_of_last(96 + 32, 2048, HATTN_FLOAT16), 0);
}

TEST_F(LastRows, StayInTheTileThatIsForced) {
    const std::string kernel = planned(40, 300).at("kernel");
    EXPECT_EQ(planned(40, 300, HATTN_FLOAT32, "kernel=" + kernel).at("last_kernel"), nullptr);
}

TEST_F(LastRows, HaveTheBitsOfTheUsualTile) {
    test::ContextPtr context = test::make_context(1, "target=x86-avx2");
    for (const int64_t rows : {26, 40, 64, 100}) {
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
            const nlohmann::json plan = planned(problem.desc, "target=x86-avx2");
            ASSERT_FALSE(plan.at("last_kernel").is_null()) << rows << " rows";
            test::ContextPtr forced = test::make_context(1, "kernel=" + plan.at("kernel").get<std::string>());
            ASSERT_TRUE(test::run(forced.get(), problem, HATTN_ALGORITHM_FLASH).ok());
            EXPECT_TRUE(test::same_bits(test::output_values(problem), found)) << rows << " rows";
        }
    }
}

}  // namespace
