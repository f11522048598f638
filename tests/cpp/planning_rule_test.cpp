// What the planner takes where no tuning decides.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "problem.h"
#include "runtime/cpu_features.h"
#include "support/json_text.h"
#include "support/some_desc.h"

namespace {

using namespace hattn;

struct Heads {
    int64_t query, kv;
};

nlohmann::json planned(const test::ContextPtr &context, Heads heads, int64_t rows, int64_t keys, int64_t batch = 1,
                       int64_t head_dim = 16, hattn_dtype dtype = HATTN_FLOAT32, float softcap = 0.0f) {
    hattn_attention_desc desc = test::some_desc(rows, keys);
    desc.dtype = dtype == HATTN_INT8 ? HATTN_FLOAT32 : dtype;
    desc.k_dtype = desc.v_dtype = dtype;
    desc.softcap = softcap;
    desc.batch = batch;
    desc.query_heads = heads.query;
    desc.kv_heads = heads.kv;
    desc.key_dim = desc.value_dim = head_dim;
    return test::explanation_of(test::make_plan(context.get(), desc).get());
}

// Of the kernel that computes the last rows of a head.
int64_t rows_of_last_tile(const nlohmann::json &plan) {
    if (plan.at("last_kernel").is_null()) {
        return plan.at("tile").at("rows");
    }
    const std::string name = plan.at("last_kernel");
    return std::stoll(name.substr(name.find("_r") + 2));
}

// On a target without tunings of its own, so that the rule decides. Its tile of naive has 8 rows.
TEST(Rule, NaiveTakesFewRowsThatFillItsTileOverFewKeys) {
    test::ContextPtr context = test::make_context(1, "target=generic");
    const auto algorithm = [&](int64_t query_heads, int64_t rows, int64_t keys, bool mask = false) {
        cases::Case c;
        c.name = "planned";
        c.query_heads = query_heads;
        c.kv_heads = 2;
        c.query_length = rows;
        c.kv_length = keys;
        if (mask) {
            c.mask = cases::varying("qk");
        }
        return test::explanation_of(test::make_plan(context.get(), cases::desc_of(c)).get()).at("algorithm");
    };
    EXPECT_EQ(algorithm(2, 8, 512), "naive");
    EXPECT_EQ(algorithm(2, 5, 512), "naive");
    EXPECT_EQ(algorithm(2, 4, 512), "split_kv");
    EXPECT_EQ(algorithm(2, 9, 512), "split_kv");
    EXPECT_EQ(algorithm(2, 8, 513), "split_kv");
    EXPECT_EQ(algorithm(4, 8, 512), "split_kv");
    EXPECT_EQ(algorithm(2, 8, 512, true), "split_kv");
}

TEST(Rule, NaiveTakesShortPrompts) {
    test::ContextPtr context = test::make_context(1, "target=generic");
    // With a hook, which takes others longer.
    const auto algorithm = [&](int64_t rows, int64_t keys, bool causal, float softcap = 20.0f) {
        hattn_attention_desc desc = test::some_desc(rows, keys);
        desc.query_heads = 8;
        desc.kv_heads = 2;
        desc.causal = causal ? 1 : 0;
        desc.softcap = softcap;
        return test::explanation_of(test::make_plan(context.get(), desc).get()).at("algorithm");
    };
    EXPECT_EQ(algorithm(64, 64, true), "naive");
    EXPECT_EQ(algorithm(65, 64, true), "flash");
    EXPECT_EQ(algorithm(64, 65, true), "flash");
    EXPECT_EQ(algorithm(52, 64, true), "naive");
    // Rows that see most of the keys.
    EXPECT_EQ(algorithm(51, 64, true), "flash");
    EXPECT_EQ(algorithm(32, 32, false), "flash");
    EXPECT_EQ(algorithm(64, 64, true, 0.0f), "flash");
    EXPECT_EQ(algorithm(33, 33, true, 0.0f), "flash");
}

// Of wide vectors naive is as fast for a row of a tile: for few rows, and with hooks over stored types.
TEST(Rule, TilesOfWideVectorsAreFilledByShortPrompts) {
    const char *target = "target=x86-avx512";
    if (!test::new_context(target).outcome.ok()) {
        GTEST_SKIP() << "this CPU has no AVX-512";
    }
    test::ContextPtr context = test::make_context(1, target);
    const auto algorithm = [&](int64_t rows, hattn_dtype dtype, float softcap = 0.0f) {
        hattn_attention_desc desc = test::some_desc(rows, rows);
        desc.query_heads = 8;
        desc.kv_heads = 2;
        desc.causal = 1;
        desc.softcap = softcap;
        desc.k_dtype = desc.v_dtype = dtype;
        return test::explanation_of(test::make_plan(context.get(), desc).get()).at("algorithm");
    };
    EXPECT_EQ(algorithm(32, HATTN_FLOAT32), "naive");
    EXPECT_EQ(algorithm(64, HATTN_FLOAT32), "flash");
    EXPECT_EQ(algorithm(64, HATTN_FLOAT32, 20.0f), "naive");
    EXPECT_EQ(algorithm(32, HATTN_FLOAT16), "flash");
    EXPECT_EQ(algorithm(32, HATTN_FLOAT16, 20.0f), "naive");
    EXPECT_EQ(algorithm(64, HATTN_FLOAT16, 20.0f), "naive");
}

// Naive brings bfloat16 numbers into float32.
TEST(Rule, PairsOfBfloat16TakeAllButTheShortestPrompts) {
    if (!cpu_has_features("amd avx512bf16") || !test::new_context("target=x86-avx512").outcome.ok()) {
        GTEST_SKIP() << "neither flash nor split_kv multiplies pairs here";
    }
    test::ContextPtr context = test::make_context(1, "target=x86-avx512");
    const auto kernel = [&](int64_t rows, int64_t kv_heads) {
        hattn_attention_desc desc = test::some_desc(rows, rows);
        desc.dtype = HATTN_BFLOAT16;
        desc.causal = 1;
        desc.query_heads = 8;
        desc.kv_heads = kv_heads;
        const std::string name = test::explanation_of(test::make_plan(context.get(), desc).get()).at("kernel");
        return name.substr(0, name.find("_x86"));
    };
    EXPECT_EQ(kernel(16, 2), "stored_naive");
    EXPECT_EQ(kernel(17, 8), "bfloat16_pairs_split_kv");
    EXPECT_EQ(kernel(32, 8), "bfloat16_pairs_split_kv");
    EXPECT_EQ(kernel(33, 8), "bfloat16_flash");
    EXPECT_EQ(kernel(20, 2), "bfloat16_pairs_split_kv");
    EXPECT_EQ(kernel(64, 2), "bfloat16_flash");
}

// Where numbers are multiplied as they are stored, matrices have all but the shortest.
TEST(Rule, MatricesTakeAllButTheShortestPrompts) {
    test::ContextPtr context = test::make_context();
    const auto plan = [&](int64_t rows) {
        hattn_attention_desc desc = test::some_desc(rows, rows);
        desc.dtype = HATTN_BFLOAT16;
        desc.causal = 1;
        return test::explanation_of(test::make_plan(context.get(), desc).get());
    };
    if (!plan(2048).at("kernel").get<std::string>().starts_with("amx_flash_")) {
        GTEST_SKIP() << plan(2048).at("kernel") << " multiplies no matrices";
    }
    EXPECT_EQ(plan(32).at("algorithm"), "naive");
    EXPECT_EQ(plan(33).at("algorithm"), "flash");
    EXPECT_EQ(plan(64).at("algorithm"), "flash");
}

// Bands have a kernel for each hook, split_kv all hooks at once; of few rows and keys bands leave more for nothing.
TEST(Rule, FewRowsWithHooksAreForSplitKvWhereMatricesGoInBands) {
    test::ContextPtr context = test::make_context();
    if (!planned(context, {2, 2}, 2048, 2048, 1, 128, HATTN_BFLOAT16)["kernel"].get<std::string>().starts_with(
            "amx_")) {
        GTEST_SKIP() << "this CPU multiplies no matrices";
    }
    const auto algorithm = [&](int64_t rows, int64_t keys, float softcap) {
        return planned(context, {2, 2}, rows, keys, 1, 128, HATTN_BFLOAT16, softcap).at("algorithm");
    };
    EXPECT_EQ(algorithm(8, 2048, 20.0f), "split_kv");
    EXPECT_EQ(algorithm(9, 2048, 20.0f), "flash");
    EXPECT_EQ(algorithm(16, 128, 20.0f), "split_kv");
    EXPECT_EQ(algorithm(16, 129, 20.0f), "flash");
    EXPECT_EQ(algorithm(17, 128, 20.0f), "flash");
    EXPECT_EQ(algorithm(5, 2048, 0.0f), "flash");
    EXPECT_EQ(algorithm(4, 2048, 0.0f), "split_kv");
}

// However many heads share a kv head: keys are read as seldom as tiles of flash allow, unless smaller ones compute
// fewer rows.
TEST(Rule, HeadsOfAKvHeadFillTilesOfFlash) {
    test::ContextPtr context = test::make_context(1, "algorithm=flash");
    for (int64_t group : {2, 9, 20, 48, 64, 71, 200}) {
        for (int64_t rows : {1, 2, 5}) {
            cases::Case c;
            c.name = "planned";
            c.query_heads = group;
            c.kv_heads = 1;
            c.query_length = rows;
            c.kv_length = 100;
            const nlohmann::json plan = test::explanation_of(test::make_plan(context.get(), cases::desc_of(c)).get());
            const int64_t tile = plan.at("tile").at("rows"), heads = plan.at("heads_per_tile");
            // As many tiles as it takes to hold whole rows of heads, the last one of each direction not full.
            const int64_t per_tile = std::max<int64_t>(tile / rows, 1);
            const int64_t fewest = (group + per_tile - 1) / per_tile;
            const int64_t tasks = plan.at("tasks"), least = rows_of_last_tile(plan);
            EXPECT_LE(tasks * least, fewest * tile)
                << group << " heads of " << rows << " rows, " << heads << " in a tile";
            EXPECT_TRUE(tasks <= fewest || least < tile) << tasks << " tasks in place of " << fewest;
        }
    }
}

// Rows of one head go into the output without a pass of their own.
TEST(Rule, TilesOfFlashHaveNoMoreHeadsThanFewTilesTake) {
    constexpr int kFewest = 6;
    test::ContextPtr context = test::make_context(1, "algorithm=flash");
    int plans = 0;
    for (const int64_t group : {2, 6, 8}) {
        for (int64_t rows = 1; rows <= 96; ++rows) {
            const nlohmann::json plan = planned(context, {group, 1}, rows, 4096);
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

TEST(Rule, TilesThatMultiplyTermsHaveTwoHeads) {
    test::ContextPtr context = test::make_context(1, "algorithm=flash");
    const std::string usual = planned(context, {16, 8}, 2048, 2048)["kernel"];
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
        const nlohmann::json plan = planned(context, heads, rows, 2048);
        EXPECT_EQ(plan["tile"]["rows"], tile_rows) << heads.query << " heads, " << rows << " rows: " << plan["kernel"];
        EXPECT_EQ(plan["heads_per_tile"], heads_per_tile) << heads.query << " heads, " << rows << " rows";
    }
}

// What rows leave of tiles of 64 goes to tiles of 48 and 32, which fill as well as those of split_kv.
TEST(Rule, RowsBeyondDraftsAreForFlashOnAvx512) {
    const char *target = "target=x86-avx512";
    if (!test::new_context(target).outcome.ok()) {
        GTEST_SKIP() << "this CPU has no AVX-512";
    }
    test::ContextPtr context = test::make_context(1, target);
    const auto algorithm = [&](int64_t rows, int64_t keys, hattn_dtype dtype = HATTN_FLOAT32) {
        return planned(context, {2, 2}, rows, keys, 1, 64, dtype).at("algorithm");
    };
    EXPECT_EQ(planned(context, {2, 2}, 512, 256).at("tile").at("rows"), cpu_has_features("amd") ? 32 : 64);
    for (const int64_t keys : {256, 1 << 15}) {
        for (const int64_t rows : {40, 64, 65, 96, 97, 128, 129, 160, 161, 224}) {
            EXPECT_EQ(algorithm(rows, keys), "flash") << rows << " rows, " << keys << " keys";
        }
    }
    EXPECT_EQ(planned(context, {8, 2}, 24, 256).at("algorithm"), "flash");
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

// Over stored types Zen 5 has a tile of 32 rows, and one of 64 that multiplies twice as many at a time.
TEST(Rule, LargeTilesThatMultiplyMoreRowsAtATimeAreForRowsThatFillThem) {
    const char *target = "target=x86-avx512";
    if (!cpu_has_features("amdfam1ah") || !test::new_context(target).outcome.ok()) {
        GTEST_SKIP() << "this CPU has one tile of flash over stored types, or two that multiply as many rows at a time";
    }
    test::ContextPtr context = test::make_context(1, target);
    const auto tile_rows = [&](int64_t rows, int64_t keys, bool causal) {
        hattn_attention_desc desc = test::some_desc(rows, keys);
        desc.k_dtype = desc.v_dtype = HATTN_FLOAT16;
        desc.causal = causal;
        return test::explanation_of(test::make_plan(context.get(), desc).get()).at("tile").at("rows");
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

// Tiles of flash have 24 rows and, for the last ones, 16, as those of split_kv have.
TEST(Rule, RowsBeyondDraftsAreForFlashOnAvx2) {
    const char *target = "target=x86-avx2";
    if (!test::new_context(target).outcome.ok()) {
        GTEST_SKIP() << "this CPU has no AVX2";
    }
    test::ContextPtr context = test::make_context(1, target);
    const auto algorithm = [&](int64_t rows) { return planned(context, {2, 2}, rows, 2048).at("algorithm"); };
    EXPECT_EQ(algorithm(80), "flash");
    EXPECT_EQ(algorithm(64), "flash");
    EXPECT_EQ(algorithm(112), "flash");
    EXPECT_EQ(algorithm(160), "flash");
}

// Three terms take longer for a tile, whatever its rows.
TEST(Rule, FewRowsAreForFloat32WhereMatricesAreOfThreeTerms) {
    test::ContextPtr context = test::make_context();
    const std::string usual = planned(context, {16, 8}, 2048, 2048)["kernel"];
    if (!usual.starts_with("amx_float32_flash_")) {
        GTEST_SKIP() << usual << " multiplies no terms";
    }
    const auto in_terms = [&](int64_t rows, int64_t keys, int64_t head = 128) {
        const std::string kernel = planned(context, {2, 2}, rows, keys, 1, head).at("kernel");
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
TEST(Rule, TermsTakeMoreWithHooks) {
    test::ContextPtr context = test::make_context();
    const std::string usual = planned(context, {16, 8}, 2048, 2048)["kernel"];
    if (!usual.starts_with("amx_float32_flash_")) {
        GTEST_SKIP() << usual << " multiplies no terms";
    }
    const auto in_terms = [&](hattn_dtype dtype, int64_t rows, int64_t keys, float softcap = 0.0f) {
        const std::string kernel = planned(context, {2, 2}, rows, keys, 1, 128, dtype, softcap).at("kernel");
        return kernel.starts_with("amx_stored_flash_") || kernel.starts_with("amx_halves_flash_");
    };
    for (const hattn_dtype dtype : {HATTN_INT8, HATTN_FLOAT16}) {
        EXPECT_FALSE(in_terms(dtype, 130, 96, 20.0f)) << dtype;
        EXPECT_TRUE(in_terms(dtype, 130, 97, 20.0f)) << dtype;
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

// Heads that no tile divides: with tiles for last rows as few rows are computed as can be.
TEST(Rule, LastTilesCountAsHeadsFillTiles) {
    const char *target = "target=x86-avx512";
    if (!test::new_context(target).outcome.ok()) {
        GTEST_SKIP() << "this CPU has no AVX-512";
    }
    test::ContextPtr context = test::make_context(1, target);
    const nlohmann::json plan = planned(context, {3, 1}, 32, 300);
    EXPECT_EQ(plan.at("algorithm"), "flash");
    EXPECT_EQ(plan.at("tasks").get<int64_t>() * rows_of_last_tile(plan), 96) << plan;
}

// All rows of a tile cost what one does, so that few of them are better off than in float32.
TEST(Rule, RowsThatMultiplyMatricesOfBytesAreForSplitKv) {
    test::ContextPtr context = test::make_context();
    const auto plan = [&](int64_t rows, int64_t group = 1) {
        hattn_attention_desc desc = test::some_desc(rows, 2048);
        desc.query_heads = 2 * group;
        desc.kv_heads = 2;
        desc.key_dim = desc.value_dim = 128;
        desc.k_dtype = desc.v_dtype = HATTN_INT8;
        return test::explanation_of(test::make_plan(context.get(), desc).get());
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

// A sequence that makes many splits has longer ones, as have many rows, whatever the batch.
TEST(Rule, ManySplitsOfDecodeAreLonger) {
    test::ContextPtr context = test::make_context(1, "algorithm=split_kv");
    const auto split = [&](int64_t kv_heads, int64_t keys, int64_t batch = 1, int64_t rows = 1, int64_t head = 128) {
        return planned(context, {2 * kv_heads, kv_heads}, rows, keys, batch, head).at("split_keys").get<int64_t>();
    };
    EXPECT_EQ(split(2, 4096, 1, 4), 512);
    EXPECT_EQ(split(2, 4096, 1, 5), 1024);
    // Unless that leaves tasks for few threads alone.
    EXPECT_EQ(split(2, 1024, 1, 5), 512);
    EXPECT_EQ(split(2, 1024, 1, 16), 512);
    EXPECT_EQ(split(2, 1024, 1, 17), 1024);  // two tiles of each kv head
    EXPECT_EQ(split(2, 1025, 1, 5), 1024);
    EXPECT_EQ(split(1, 3072, 1, 5), 512);
    EXPECT_EQ(split(1, 3073, 1, 5), 1024);
    // Of short heads few rows do, too.
    EXPECT_EQ(split(2, 4096, 1, 1, 64), 1024);
    EXPECT_EQ(split(2, 4096, 1, 2, 64), 512);
    EXPECT_EQ(split(8, 4095), 512);
    EXPECT_EQ(split(8, 4096), 1024);
    EXPECT_EQ(split(8, 8191), 1536);
    EXPECT_EQ(split(8, 8192), 2048);
    EXPECT_EQ(split(8, 1 << 14), 4096);
    EXPECT_EQ(split(8, 1 << 21), 4096);
    EXPECT_EQ(split(1, 1 << 14), 512);
    EXPECT_EQ(split(1, 1 << 15), 1024);
    EXPECT_EQ(split(1, 1 << 23), 8192);
    EXPECT_EQ(split(8, 4096, 100), split(8, 4096));
}

// What few tiles of flash leave to few threads is split, at keys that depend neither on the kernel nor on the batch.
TEST(Rule, FewTilesOfFlashAreSplit) {
    test::ContextPtr context = test::make_context(1, "algorithm=flash");
    const auto split = [&](int64_t query_heads, int64_t rows, int64_t keys, int64_t batch = 1, int64_t kv_heads = 1) {
        return planned(context, {query_heads, kv_heads}, rows, keys, batch).at("split_keys").get<int64_t>();
    };
    EXPECT_EQ(split(64, 1, 1024), 0);
    EXPECT_EQ(split(64, 1, 1025), 1024);
    EXPECT_EQ(split(64, 1, 6144), 1024);
    EXPECT_EQ(split(64, 1, 6145), 2048);
    EXPECT_EQ(split(64, 1, 1 << 15), 2048);
    EXPECT_EQ(split(64, 1, 1 << 16), 4096);
    EXPECT_EQ(split(64, 1, 1 << 20), 8192);
    EXPECT_EQ(split(64, 1, 4096, 100), split(64, 1, 4096));
    EXPECT_EQ(split(64, 1, 2048, 1, 4), 0);
    EXPECT_EQ(split(64, 1, 2048, 1, 2), 1024);
    EXPECT_EQ(split(64, 8, 8192), 4096);
    EXPECT_EQ(split(64, 9, 8192), 0);
    EXPECT_EQ(split(1, 8192, 8192), 0);
}

}  // namespace
