// What the planner takes of flash where no tuning decides: its tiles, and rows that split_kv may take as well.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/cpu_features.h"
#include "support/planned_problem.h"

namespace {

using namespace hattn;
using test::planned;

struct Heads {
    int64_t query, kv;
};

// A long prompt's kernel: what of this CPU multiplies numbers of that type.
std::string usual_kernel(const test::ContextPtr &context, hattn_dtype dtype = HATTN_FLOAT32) {
    return planned(context,
                   {.query_heads = 16, .kv_heads = 8, .rows = 2048, .keys = 2048, .head_dim = 128, .dtype = dtype})
        .at("kernel");
}

// Bands have a kernel for each hook, split_kv all hooks at once; of few rows and keys bands leave more for nothing.
TEST(FlashRule, FewRowsWithHooksAreForSplitKvWhereMatricesGoInBands) {
    test::ContextPtr context = test::make_context();
    if (!usual_kernel(context, HATTN_BFLOAT16).starts_with("amx_")) {
        GTEST_SKIP() << "this CPU multiplies no matrices";
    }
    const auto algorithm = [&](int64_t rows, int64_t keys, float softcap) {
        return planned(context,
                       {.rows = rows, .keys = keys, .head_dim = 128, .dtype = HATTN_BFLOAT16, .softcap = softcap})
            .at("algorithm");
    };
    EXPECT_EQ(algorithm(8, 2048, 20.0f), "split_kv");
    EXPECT_EQ(algorithm(9, 2048, 20.0f), "flash");
    EXPECT_EQ(algorithm(16, 128, 20.0f), "split_kv");
    EXPECT_EQ(algorithm(16, 129, 20.0f), "flash");
    EXPECT_EQ(algorithm(17, 128, 20.0f), "flash");
    EXPECT_EQ(algorithm(5, 2048, 0.0f), "flash");
    EXPECT_EQ(algorithm(4, 2048, 0.0f), "split_kv");
}

// Where they take less time, and leave all threads of a few something to do: not in long heads, nor if rows see most
// keys.
TEST(FlashRule, ShortPromptsOfBfloat16GoInBands) {
    test::ContextPtr context = test::make_context();
    if (!usual_kernel(context, HATTN_BFLOAT16).starts_with("amx_")) {
        GTEST_SKIP() << "this CPU multiplies no matrices";
    }
    const auto rows_of_tile = [&](Heads heads, int64_t rows, int64_t keys, int64_t head_dim) {
        return planned(context, {.query_heads = heads.query,
                                 .kv_heads = heads.kv,
                                 .rows = rows,
                                 .keys = keys,
                                 .head_dim = head_dim,
                                 .dtype = HATTN_BFLOAT16})
            .at("tile")
            .at("rows")
            .get<int>();
    };
    for (const int64_t rows : {33, 48, 64, 100, 128}) {
        EXPECT_EQ(rows_of_tile({32, 8}, rows, rows, 128), 256) << rows << " rows";
    }
    EXPECT_EQ(rows_of_tile({32, 8}, 60, 128, 128), 256);
    EXPECT_EQ(rows_of_tile({16, 8}, 128, 128, 256), 128);  // long heads
    EXPECT_EQ(rows_of_tile({16, 8}, 32, 128, 128), 32);
    EXPECT_EQ(rows_of_tile({9, 3}, 64, 64, 64), 32);  // would be three tiles
    EXPECT_EQ(rows_of_tile({8, 1}, 8, 128, 128), 32);
}

// However many heads share a kv head: keys are read as seldom as tiles of flash allow, unless smaller ones compute
// fewer rows.
TEST(FlashRule, HeadsOfAKvHeadFillTiles) {
    test::ContextPtr context = test::make_context(1, "algorithm=flash");
    for (int64_t group : {2, 9, 20, 48, 64, 71, 200}) {
        for (int64_t rows : {1, 2, 5}) {
            const nlohmann::json plan =
                planned(context, {.query_heads = group, .kv_heads = 1, .rows = rows, .keys = 100});
            const int64_t tile = plan.at("tile").at("rows"), heads = plan.at("heads_per_tile");
            // As many tiles as it takes to hold whole rows of heads, the last one of each direction not full.
            const int64_t per_tile = std::max<int64_t>(tile / rows, 1);
            const int64_t fewest = (group + per_tile - 1) / per_tile;
            const int64_t tasks = plan.at("tasks"), least = test::rows_of_last_tile(plan);
            EXPECT_LE(tasks * least, fewest * tile)
                << group << " heads of " << rows << " rows, " << heads << " in a tile";
            EXPECT_TRUE(tasks <= fewest || least < tile) << tasks << " tasks in place of " << fewest;
        }
    }
}

// Rows of one head go into the output without a pass of their own.
TEST(FlashRule, TilesHaveNoMoreHeadsThanFewTilesTake) {
    constexpr int kFewest = 6;
    test::ContextPtr context = test::make_context(1, "algorithm=flash");
    int plans = 0;
    for (const int64_t group : {2, 6, 8}) {
        for (int64_t rows = 1; rows <= 96; ++rows) {
            const nlohmann::json plan =
                planned(context, {.query_heads = group, .kv_heads = 1, .rows = rows, .keys = 4096});
            if (plan.at("kernel").get<std::string>().starts_with("amx_float32_")) {
                continue;  // computes no bands without rows: tiles have the heads that leave few of them half empty
            }
            if (!plan.at("last_kernel").is_null()) {
                continue;  // smaller tiles hold some of the rows
            }
            ++plans;
            const int64_t tile = plan.at("tile").at("rows"), heads = plan.at("heads_per_tile");
            const auto tiles = [&](int64_t of_heads) {
                const int64_t tile_rows = tile / of_heads;
                return (rows + tile_rows - 1) / tile_rows * ((group + of_heads - 1) / of_heads);
            };
            for (int64_t fewer = 1; fewer < heads; ++fewer) {
                EXPECT_GT(tiles(fewer), tiles(heads))
                    << group << " heads of " << rows << " rows, " << heads << " in a tile";
            }
        }
    }
    EXPECT_GT(plans, kFewest);
}

// Heads that no tile divides: with tiles for last rows as few rows are computed as can be.
TEST(FlashRule, LastTilesCountAsHeadsFillTiles) {
    const char *target = "target=x86-avx512";
    if (!test::new_context(target).outcome.ok()) {
        GTEST_SKIP() << "this CPU has no AVX-512";
    }
    test::ContextPtr context = test::make_context(1, target);
    const nlohmann::json plan = planned(context, {.query_heads = 3, .kv_heads = 1, .rows = 32, .keys = 300});
    EXPECT_EQ(plan.at("algorithm"), "flash");
    EXPECT_EQ(plan.at("tasks").get<int64_t>() * test::rows_of_last_tile(plan), 96) << plan;
}

TEST(FlashRule, TilesThatMultiplyTermsHaveTwoHeads) {
    test::ContextPtr context = test::make_context(1, "algorithm=flash");
    const std::string usual = usual_kernel(context);
    if (!usual.starts_with("amx_float32_flash_")) {
        GTEST_SKIP() << usual << " multiplies no terms";
    }
    struct Expected {
        Heads heads;
        int64_t rows, tile_rows, heads_per_tile;
    };
    for (const auto &[heads, rows, tile_rows, heads_per_tile] : std::vector<Expected>{
             {{16, 8}, 2048, 256, 2},
             {{8, 8}, 2048, 256, 1},
             {{32, 8}, 1024, 256, 2},  // long prompts
             {{24, 8}, 2048, 256, 1},  // of three heads, where a third tile would be half empty
             {{8, 8}, 128, 256, 1},
             {{16, 8}, 128, 256, 2},
             {{16, 8}, 60, 256, 2},
             {{32, 8}, 60, 256, 4},  // few rows
         }) {
        const nlohmann::json plan =
            planned(context, {.query_heads = heads.query, .kv_heads = heads.kv, .rows = rows, .keys = 2048});
        EXPECT_EQ(plan["tile"]["rows"], tile_rows) << heads.query << " heads, " << rows << " rows: " << plan["kernel"];
        EXPECT_EQ(plan["heads_per_tile"], heads_per_tile) << heads.query << " heads, " << rows << " rows";
    }
}

// What rows leave of tiles of 64 goes to tiles of 48 and 32, which fill as well as those of split_kv.
TEST(FlashRule, RowsBeyondDraftsAreForFlashOnAvx512) {
    const char *target = "target=x86-avx512";
    if (!test::new_context(target).outcome.ok()) {
        GTEST_SKIP() << "this CPU has no AVX-512";
    }
    test::ContextPtr context = test::make_context(1, target);
    const auto algorithm = [&](int64_t rows, int64_t keys, hattn_dtype dtype = HATTN_FLOAT32) {
        return planned(context, {.rows = rows, .keys = keys, .head_dim = 64, .dtype = dtype}).at("algorithm");
    };
    EXPECT_EQ(planned(context, {.rows = 512, .keys = 256}).at("tile").at("rows"), cpu_has_features("amd") ? 32 : 64);
    for (const int64_t keys : {256, 1 << 15}) {
        for (const int64_t rows : {40, 64, 65, 96, 97, 128, 129, 160, 161, 224}) {
            EXPECT_EQ(algorithm(rows, keys), "flash") << rows << " rows, " << keys << " keys";
        }
    }
    EXPECT_EQ(planned(context, {.query_heads = 8, .rows = 24, .keys = 256}).at("algorithm"), "flash");
    EXPECT_EQ(algorithm(96, 2048, HATTN_FLOAT16), "flash");
    EXPECT_EQ(algorithm(160, 2048, HATTN_FLOAT16), "flash");
    // What both multiply in pairs.
    if (cpu_has_features("amd avx512bf16")) {
        EXPECT_EQ(algorithm(96, 2048, HATTN_BFLOAT16), "split_kv");
        EXPECT_EQ(algorithm(128, 2048, HATTN_BFLOAT16), "flash");
        EXPECT_EQ(algorithm(160, 2048, HATTN_BFLOAT16), "split_kv");
        EXPECT_EQ(algorithm(161, 2048, HATTN_BFLOAT16), "flash");
    }
}

// Tiles of flash have 24 rows and, for the last ones, 16, as those of split_kv have.
TEST(FlashRule, RowsBeyondDraftsAreForFlashOnAvx2) {
    const char *target = "target=x86-avx2";
    if (!test::new_context(target).outcome.ok()) {
        GTEST_SKIP() << "this CPU has no AVX2";
    }
    test::ContextPtr context = test::make_context(1, target);
    for (const int64_t rows : {64, 80, 112, 160}) {
        EXPECT_EQ(planned(context, {.rows = rows, .keys = 2048}).at("algorithm"), "flash") << rows << " rows";
    }
}

// Over stored types Zen 5 has a tile of 32 rows, and one of 64 that multiplies twice as many at a time.
TEST(FlashRule, LargeTilesThatMultiplyMoreRowsAtATimeAreForRowsThatFillThem) {
    const char *target = "target=x86-avx512";
    if (!cpu_has_features("amdfam1ah") || !test::new_context(target).outcome.ok()) {
        GTEST_SKIP() << "this CPU has one tile of flash over stored types, or two that multiply as many rows at a time";
    }
    test::ContextPtr context = test::make_context(1, target);
    const auto tile_rows = [&](int64_t rows, int64_t keys, bool causal) {
        return planned(context, {.kv_heads = 1, .rows = rows, .keys = keys, .stored = HATTN_FLOAT16, .causal = causal})
            .at("tile")
            .at("rows");
    };
    EXPECT_EQ(tile_rows(128, 128, true), 64);
    EXPECT_EQ(tile_rows(160, 160, true), 32);
    EXPECT_EQ(tile_rows(512, 512, true), 64);
    // One row in 16 is empty: of a prompt they see twice as many keys as others.
    EXPECT_EQ(tile_rows(480, 480, true), 32);
    EXPECT_EQ(tile_rows(480, 480, false), 32);
    EXPECT_EQ(tile_rows(544, 544, false), 64);
    EXPECT_EQ(tile_rows(992, 992, true), 32);
    EXPECT_EQ(tile_rows(1056, 1056, true), 64);
    EXPECT_EQ(tile_rows(480, 2048, true), 32);
    EXPECT_EQ(tile_rows(544, 2048, true), 64);
    EXPECT_EQ(tile_rows(2048, 2048, true), 64);
}

// Three terms take longer for a tile, whatever its rows.
TEST(FlashRule, FewRowsAreForFloat32WhereMatricesAreOfThreeTerms) {
    test::ContextPtr context = test::make_context();
    const std::string usual = usual_kernel(context);
    if (!usual.starts_with("amx_float32_flash_")) {
        GTEST_SKIP() << usual << " multiplies no terms";
    }
    const auto in_terms = [&](int64_t rows, int64_t keys, int64_t head = 128) {
        const std::string kernel = planned(context, {.rows = rows, .keys = keys, .head_dim = head}).at("kernel");
        return kernel.starts_with("amx_float32_flash_");
    };
    EXPECT_FALSE(in_terms(64, 2048));
    EXPECT_FALSE(in_terms(96, 1 << 15));
    EXPECT_TRUE(in_terms(97, 2048));
    EXPECT_FALSE(in_terms(97, 384));
    EXPECT_TRUE(in_terms(97, 385));
    EXPECT_TRUE(in_terms(97, 2048, 64));
    EXPECT_FALSE(in_terms(97, 1024, 64));
}

// Of stored types float32 kernels have all hooks at once, those of terms each hook and its mask.
TEST(FlashRule, TermsTakeMoreWithHooks) {
    test::ContextPtr context = test::make_context();
    const std::string usual = usual_kernel(context);
    if (!usual.starts_with("amx_float32_flash_")) {
        GTEST_SKIP() << usual << " multiplies no terms";
    }
    const auto in_terms = [&](hattn_dtype stored, int64_t rows, int64_t keys, float softcap = 0.0f) {
        const std::string kernel = planned(context, {.rows = rows,
                                                     .keys = keys,
                                                     .head_dim = 128,
                                                     .dtype = stored == HATTN_INT8 ? HATTN_FLOAT32 : stored,
                                                     .stored = stored,
                                                     .softcap = softcap})
                                       .at("kernel");
        return kernel.starts_with("amx_stored_flash_") || kernel.starts_with("amx_halves_flash_");
    };
    for (const hattn_dtype stored : {HATTN_INT8, HATTN_FLOAT16}) {
        EXPECT_FALSE(in_terms(stored, 130, 96, 20.0f)) << stored;
        EXPECT_TRUE(in_terms(stored, 130, 97, 20.0f)) << stored;
    }
    EXPECT_FALSE(in_terms(HATTN_INT8, 130, 384));
    EXPECT_TRUE(in_terms(HATTN_INT8, 130, 385));
    EXPECT_FALSE(in_terms(HATTN_FLOAT16, 130, 128));
    EXPECT_TRUE(in_terms(HATTN_FLOAT16, 130, 129));
    // Few rows, as they fill tiles.
    EXPECT_TRUE(in_terms(HATTN_INT8, 64, 1000, 20.0f));
    EXPECT_FALSE(in_terms(HATTN_INT8, 64, 150, 20.0f));
    EXPECT_FALSE(in_terms(HATTN_INT8, 48, 1000, 20.0f));
    EXPECT_TRUE(in_terms(HATTN_FLOAT16, 64, 1000));
    EXPECT_FALSE(in_terms(HATTN_FLOAT16, 64, 200));
    EXPECT_FALSE(in_terms(HATTN_FLOAT16, 48, 1000));
}

// All rows of a tile cost what one does, so that few of them are better off than in float32.
TEST(FlashRule, RowsThatMultiplyMatricesOfBytesAreForSplitKv) {
    test::ContextPtr context = test::make_context();
    const auto plan = [&](int64_t rows, int64_t group = 1) {
        return planned(context,
                       {.query_heads = 2 * group, .rows = rows, .keys = 2048, .head_dim = 128, .stored = HATTN_INT8});
    };
    if (!plan(8).at("kernel").get<std::string>().starts_with("amx_int8_split_kv_")) {
        GTEST_SKIP() << plan(8).at("kernel") << " multiplies no matrices";
    }
    EXPECT_EQ(plan(64).at("algorithm"), "split_kv");
    EXPECT_EQ(plan(96).at("algorithm"), "split_kv");
    EXPECT_EQ(plan(97).at("algorithm"), "flash");
    // Nine heads are two of its tiles for each position.
    EXPECT_EQ(plan(8, 8).at("algorithm"), "split_kv");
    EXPECT_EQ(plan(8, 9).at("algorithm"), "flash");
}

}  // namespace
