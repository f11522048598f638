// Which algorithm the planner takes where no tuning decides, and what it splits. flash_rule_test.cpp: what it takes of
// flash, and rows that flash and split_kv both may take.
#include <gtest/gtest.h>

#include <string>

#include "runtime/cpu_features.h"
#include "support/planned_problem.h"

namespace {

using namespace hattn;

// On a target without tunings of its own, so that the rule decides. Its tile of naive has 8 rows.
TEST(Rule, NaiveTakesFewRowsThatFillItsTileOverFewKeys) {
    test::ContextPtr context = test::make_context(1, "target=generic");
    const auto algorithm = [&](int64_t query_heads, int64_t rows, int64_t keys, bool mask = false) {
        return test::planned(context, {.query_heads = query_heads, .rows = rows, .keys = keys, .mask = mask})
            .at("algorithm");
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
        return test::planned(context,
                             {.query_heads = 8, .rows = rows, .keys = keys, .causal = causal, .softcap = softcap})
            .at("algorithm");
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
    const auto algorithm = [&](int64_t rows, hattn_dtype stored, float softcap = 0.0f) {
        return test::planned(
                   context,
                   {.query_heads = 8, .rows = rows, .keys = rows, .stored = stored, .causal = true, .softcap = softcap})
            .at("algorithm");
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
        const std::string name = test::planned(context, {.query_heads = 8,
                                                         .kv_heads = kv_heads,
                                                         .rows = rows,
                                                         .keys = rows,
                                                         .dtype = HATTN_BFLOAT16,
                                                         .causal = true})
                                     .at("kernel");
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
        return test::planned(context,
                             {.kv_heads = 1, .rows = rows, .keys = rows, .dtype = HATTN_BFLOAT16, .causal = true});
    };
    if (!plan(2048).at("kernel").get<std::string>().starts_with("amx_flash_")) {
        GTEST_SKIP() << plan(2048).at("kernel") << " multiplies no matrices";
    }
    EXPECT_EQ(plan(32).at("algorithm"), "naive");
    EXPECT_EQ(plan(33).at("algorithm"), "flash");
    EXPECT_EQ(plan(64).at("algorithm"), "flash");
}

// A sequence that makes many splits has longer ones, as have many rows, whatever the batch.
TEST(Rule, ManySplitsOfDecodeAreLonger) {
    test::ContextPtr context = test::make_context(1, "algorithm=split_kv");
    const auto split = [&](int64_t kv_heads, int64_t keys, int64_t batch = 1, int64_t rows = 1, int64_t head = 128) {
        return test::planned(context, {.query_heads = 2 * kv_heads,
                                       .kv_heads = kv_heads,
                                       .rows = rows,
                                       .keys = keys,
                                       .batch = batch,
                                       .head_dim = head})
            .at("split_keys")
            .get<int64_t>();
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
        return test::planned(
                   context,
                   {.query_heads = query_heads, .kv_heads = kv_heads, .rows = rows, .keys = keys, .batch = batch})
            .at("split_keys")
            .get<int64_t>();
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
