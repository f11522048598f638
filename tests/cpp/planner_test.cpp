// What a plan says about itself, and that every way to force a choice is obeyed.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "problem.h"
#include "runtime/cpu_features.h"
#include "support/json_text.h"
#include "support/refusal.h"
#include "support/run.h"
#include "support/targets.h"

namespace {

using namespace hattn;

hattn_attention_desc some_desc(int64_t query_length = 40, int64_t kv_length = 700) {
    cases::Case c;
    c.name = "planned";
    c.query_length = query_length;
    c.kv_length = kv_length;
    return cases::Problem(c).desc;
}

struct Heads {
    int64_t query, kv;
};

nlohmann::json planned(const test::ContextPtr &context, Heads heads, int64_t rows, int64_t keys, int64_t batch = 1,
                       int64_t head_dim = 16, hattn_dtype dtype = HATTN_FLOAT32) {
    hattn_attention_desc desc = some_desc(rows, keys);
    desc.dtype = dtype;
    desc.batch = batch;
    desc.query_heads = heads.query;
    desc.kv_heads = heads.kv;
    desc.key_dim = desc.value_dim = head_dim;
    return test::explanation_of(test::make_plan(context.get(), desc).get());
}

TEST(Explain, SaysWhatThePlanIs) {
    test::ContextPtr context = test::make_context();
    test::PlanPtr plan = test::make_plan(context.get(), some_desc());
    nlohmann::json explanation = test::explanation_of(plan.get());
    size_t bytes = 0;
    ASSERT_EQ(hattn_plan_workspace_size(plan.get(), &bytes), HATTN_OK);
    EXPECT_EQ(explanation.at("workspace_bytes"), bytes);
    EXPECT_GT(explanation.at("tasks"), 0);
    EXPECT_NE(explanation.at("why"), "");
    EXPECT_NE(explanation.at("kernel"), "");
    EXPECT_TRUE(explanation.at("tile").is_object());
    EXPECT_NE(explanation.at("algorithm"), "auto");
}

TEST(Explain, NamesAKernelOfTheTable) {
    test::ContextPtr context = test::make_context();
    const nlohmann::json kernels = test::info_of(context.get()).at("kernels");
    for (int64_t query_length : {1, 7, 300}) {
        for (int64_t kv_length : {1, 64, 5000}) {
            test::PlanPtr plan = test::make_plan(context.get(), some_desc(query_length, kv_length));
            nlohmann::json name = test::explanation_of(plan.get()).at("kernel");
            EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(), [&](const nlohmann::json &row) {
                return row.at("name") == name && row.at("runnable") == true;
            })) << name;
        }
    }
}

TEST(Explain, NamesBothKernelsOfUnfused) {
    test::ContextPtr context = test::make_context();
    hattn_attention_desc desc = some_desc();
    for (hattn_algorithm algorithm : {HATTN_ALGORITHM_FLASH, HATTN_ALGORITHM_UNFUSED}) {
        desc.algorithm = algorithm;
        const nlohmann::json explanation = test::explanation_of(test::make_plan(context.get(), desc).get());
        const bool two = algorithm == HATTN_ALGORITHM_UNFUSED;
        EXPECT_EQ(explanation.at("values_kernel").is_string(), two);
        EXPECT_EQ(explanation.at("kernel").get<std::string>().find("unfused_scores") == 0, two);
    }
}

// The kernels of unfused work on one tile: whichever is forced, the other one follows.
TEST(Force, EitherKernelOfUnfused) {
    test::ContextPtr plain = test::make_context();
    const nlohmann::json info = test::info_of(plain.get());
    std::map<std::string, int> rows;
    for (const nlohmann::json &row : info.at("kernels")) {
        rows[row.at("name")] = row.at("tile").at("rows");
    }
    for (const nlohmann::json &row : info.at("kernels")) {
        const std::string kind = row.at("algorithm");
        if (kind.starts_with("unfused") && row.at("hooks").empty() && row.at("runnable")) {
            test::ContextPtr context = test::make_context(1, "kernel=" + row.at("name").get<std::string>());
            const nlohmann::json plan = test::explanation_of(test::make_plan(context.get(), some_desc()).get());
            EXPECT_EQ(plan.at("algorithm"), "unfused");
            EXPECT_EQ(plan.at(kind == "unfused_scores" ? "kernel" : "values_kernel"), row.at("name"));
            EXPECT_EQ(rows.at(plan.at("kernel")), rows.at(plan.at("values_kernel")));
        }
    }
}

TEST(Force, AlgorithmByTheDescriptor) {
    test::ContextPtr context = test::make_context();
    for (hattn_algorithm algorithm :
         {HATTN_ALGORITHM_NAIVE, HATTN_ALGORITHM_FLASH, HATTN_ALGORITHM_SPLIT_KV, HATTN_ALGORITHM_UNFUSED}) {
        hattn_attention_desc desc = some_desc();
        desc.algorithm = algorithm;
        test::PlanPtr plan = test::make_plan(context.get(), desc);
        EXPECT_EQ(test::explanation_of(plan.get()).at("algorithm"), test::algorithm_name(algorithm));
    }
}

TEST(Force, AlgorithmByTheEnvironment) {
    for (const char *algorithm : {"naive", "flash", "split_kv", "unfused"}) {
        test::ContextPtr context = test::make_context(1, std::string("algorithm=") + algorithm);
        for (int64_t query_length : {1, 200}) {
            test::PlanPtr plan = test::make_plan(context.get(), some_desc(query_length));
            nlohmann::json explanation = test::explanation_of(plan.get());
            EXPECT_EQ(explanation.at("algorithm"), algorithm);
            EXPECT_NE(explanation.at("why").get<std::string>().find("HATTN_FORCE"), std::string::npos);
        }
    }
}

TEST(Force, Target) {
    for (const std::string &target : test::target_names()) {
        const test::TargetContext &implementation = test::context_for(target);
        if (implementation.context) {
            test::PlanPtr plan = test::make_plan(implementation.context.get(), some_desc());
            EXPECT_EQ(test::explanation_of(plan.get()).at("target"), target);
            EXPECT_EQ(test::info_of(implementation.context.get()).at("target"), target);
        } else {
            EXPECT_TRUE(test::has_word(implementation.why_not, target)) << implementation.why_not;
        }
    }
}

std::string generic_flash_kernel(const nlohmann::json &hooks) {
    test::ContextPtr plain = test::make_context();
    const nlohmann::json info = test::info_of(plain.get());
    for (const nlohmann::json &row : info.at("kernels")) {
        if (row.at("algorithm") == "flash" && row.at("target") == "generic" && row.at("hooks") == hooks) {
            return row.at("name");
        }
    }
    return "";
}

TEST(Force, KernelThatTheProblemDoesNotFitIsAnError) {
    const std::string with_softcap = generic_flash_kernel({"softcap", "bias", "alibi", "mask"});
    ASSERT_NE(with_softcap, "");
    test::ContextPtr context = test::make_context(1, "kernel=" + with_softcap);
    hattn_attention_desc desc = some_desc();
    hattn_plan *plan = nullptr;
    test::Outcome outcome = test::outcome_of(hattn_plan_create(context.get(), &desc, &plan), context.get());
    EXPECT_EQ(test::mismatch(outcome, {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", with_softcap}}), "");
    EXPECT_EQ(plan, nullptr);
}

TEST(Force, KernelWithMoreHooksThanTheProblemIsTaken) {
    const std::string with_more = generic_flash_kernel({"bias", "alibi", "mask"});
    ASSERT_NE(with_more, "");
    test::ContextPtr context = test::make_context(1, "kernel=" + with_more);
    test::PlanPtr plan = test::make_plan(context.get(), some_desc());
    EXPECT_EQ(test::explanation_of(plan.get()).at("kernel"), with_more);
}

TEST(Force, KernelAndContradictingChoicesAreErrors) {
    test::ContextPtr plain = test::make_context();
    const nlohmann::json info = test::info_of(plain.get());
    for (const nlohmann::json &row : info.at("kernels")) {
        if (row.at("algorithm") == "flash" && row.at("target") == "generic") {
            std::string kernel = "kernel=" + row.at("name").get<std::string>();
            for (const std::string &other :
                 {std::string(",algorithm=naive"), ",target=" + test::target_names().back()}) {
                EXPECT_FALSE(test::new_context(kernel + other).outcome.ok()) << kernel + other;
            }
            EXPECT_TRUE(test::new_context(kernel + ",algorithm=flash,target=generic").outcome.ok());
        }
    }
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
        return test::explanation_of(test::make_plan(context.get(), cases::Problem(c).desc).get()).at("algorithm");
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
    const auto algorithm = [&](int64_t rows, int64_t keys, bool causal) {
        hattn_attention_desc desc = some_desc(rows, keys);
        desc.query_heads = 8;
        desc.kv_heads = 2;
        desc.causal = causal ? 1 : 0;
        return test::explanation_of(test::make_plan(context.get(), desc).get()).at("algorithm");
    };
    EXPECT_EQ(algorithm(64, 64, true), "naive");
    EXPECT_EQ(algorithm(65, 64, true), "flash");
    EXPECT_EQ(algorithm(64, 65, true), "flash");
    EXPECT_EQ(algorithm(52, 64, true), "naive");
    // Rows that see most of the keys.
    EXPECT_EQ(algorithm(51, 64, true), "flash");
    EXPECT_EQ(algorithm(32, 32, false), "flash");
}

// Where numbers are multiplied as they are stored, matrices have all but the shortest.
TEST(Rule, MatricesTakeAllButTheShortestPrompts) {
    test::ContextPtr context = test::make_context();
    const auto plan = [&](int64_t rows) {
        hattn_attention_desc desc = some_desc(rows, rows);
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

// However many heads share a kv head: keys are read as seldom as tiles of flash allow.
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
            const nlohmann::json plan =
                test::explanation_of(test::make_plan(context.get(), cases::Problem(c).desc).get());
            const int64_t tile = plan.at("tile").at("rows"), heads = plan.at("heads_per_tile");
            // As many tiles as it takes to hold whole rows of heads, the last one of each direction not full.
            const int64_t per_tile = std::max<int64_t>(tile / rows, 1);
            const int64_t fewest = (group + per_tile - 1) / per_tile;
            EXPECT_LE(plan.at("tasks"), fewest) << group << " heads of " << rows << " rows, " << heads << " in a tile";
        }
    }
}

// Rows of one head go into the output without a pass of their own.
TEST(Rule, TilesOfFlashHaveNoMoreHeadsThanFewTilesTake) {
    test::ContextPtr context = test::make_context(1, "algorithm=flash");
    for (const int64_t group : {2, 6, 8}) {
        for (int64_t rows = 1; rows <= 96; ++rows) {
            const nlohmann::json plan = planned(context, {group, 1}, rows, 4096);
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
}

TEST(Rule, TilesThatMultiplyTermsHaveTwoHeadsOrFewRows) {
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
             {{8, 8}, 128, 128, 1},
             {{16, 8}, 128, 256, 2},
             {{16, 8}, 40, 128, 2},  // few rows
         }) {
        const nlohmann::json plan = planned(context, heads, rows, 2048);
        EXPECT_EQ(plan["tile"]["rows"], tile_rows) << heads.query << " heads, " << rows << " rows: " << plan["kernel"];
        EXPECT_EQ(plan["heads_per_tile"], heads_per_tile) << heads.query << " heads, " << rows << " rows";
    }
}

// 65 to 96 rows make two tiles of 64, or three of 32.
TEST(Rule, RowsThatFillFlashBadlyAreForSplitKv) {
    const char *target = "target=x86-avx512";
    if (!test::new_context(target).outcome.ok()) {
        GTEST_SKIP() << "this CPU has no AVX-512";
    }
    test::ContextPtr context = test::make_context(1, target);
    const auto algorithm = [&](int64_t rows, int64_t keys, int64_t group = 1) {
        return planned(context, {2 * group, 2}, rows, keys).at("algorithm");
    };
    // On CPUs whose tiles of flash have 32 rows it fills them as well.
    const int tile_rows = planned(context, {2, 2}, 512, 256).at("tile").at("rows");
    EXPECT_EQ(tile_rows, cpu_has_features("amd") ? 32 : 64);
    const char *badly_filled = tile_rows == 64 ? "split_kv" : "flash";
    EXPECT_EQ(algorithm(96, 256), badly_filled);
    EXPECT_EQ(algorithm(65, 256), badly_filled);
    EXPECT_EQ(algorithm(24, 256, 4), badly_filled);
    EXPECT_EQ(algorithm(64, 256), "flash");
    EXPECT_EQ(algorithm(97, 256), "flash");
}

// Over any number of keys, and in float32 up to 160 rows; tiles that multiply terms have bounds of their own.
TEST(Rule, MoreRowsThatFillFlashBadlyAreForSplitKv) {
    const char *target = "target=x86-avx512";
    if (!test::new_context(target).outcome.ok()) {
        GTEST_SKIP() << "this CPU has no AVX-512";
    }
    test::ContextPtr context = test::make_context(1, target);
    const nlohmann::json usual = planned(context, {2, 2}, 512, 2048);
    if (!usual.at("kernel").get<std::string>().starts_with("flash_")) {
        GTEST_SKIP() << usual.at("kernel") << " multiplies terms";
    }
    const char *badly_filled = usual.at("tile").at("rows") == 64 ? "split_kv" : "flash";
    const auto algorithm = [&](int64_t rows, int64_t keys, hattn_dtype dtype = HATTN_FLOAT32) {
        return planned(context, {2, 2}, rows, keys, 1, 64, dtype).at("algorithm");
    };
    EXPECT_EQ(algorithm(129, 256), badly_filled);
    EXPECT_EQ(algorithm(160, 256), badly_filled);
    EXPECT_EQ(planned(context, {8, 2}, 40, 256).at("algorithm"), badly_filled);
    EXPECT_EQ(algorithm(161, 256), "flash");
    EXPECT_EQ(algorithm(224, 256), "flash");
    EXPECT_EQ(algorithm(96, 1 << 15), badly_filled);
    EXPECT_EQ(algorithm(128, 1 << 15), "flash");
    EXPECT_EQ(algorithm(160, 1 << 15), badly_filled);
    EXPECT_EQ(algorithm(96, 2048, HATTN_FLOAT16), badly_filled);
    EXPECT_EQ(algorithm(160, 2048, HATTN_FLOAT16), "flash");
    // What flash multiplies in pairs.
    if (cpu_has_features("amd")) {
        EXPECT_EQ(algorithm(96, 2048, HATTN_BFLOAT16), "flash");
    }
}

// Tiles of flash have 24 rows, of split_kv 16.
TEST(Rule, RowsThatFillFlashBadlyOnAvx2AreForSplitKv) {
    const char *target = "target=x86-avx2";
    if (!test::new_context(target).outcome.ok()) {
        GTEST_SKIP() << "this CPU has no AVX2";
    }
    test::ContextPtr context = test::make_context(1, target);
    const auto algorithm = [&](int64_t rows) { return planned(context, {2, 2}, rows, 2048).at("algorithm"); };
    EXPECT_EQ(algorithm(80), "split_kv");
    EXPECT_EQ(algorithm(64), "flash");
    EXPECT_EQ(algorithm(112), "flash");
    EXPECT_EQ(algorithm(160), "flash");
}

// Three terms take longer for a row, of short heads by less, and as long for a tile whatever its rows.
TEST(Rule, RowsThatFillTilesOfTermsBadlyAreForSplitKv) {
    test::ContextPtr context = test::make_context();
    const std::string usual = planned(context, {16, 8}, 2048, 2048)["kernel"];
    if (!usual.starts_with("amx_float32_flash_")) {
        GTEST_SKIP() << usual << " multiplies no terms";
    }
    const auto algorithm = [&](int64_t rows, int64_t keys, int64_t head = 128) {
        return planned(context, {2, 2}, rows, keys, 1, head).at("algorithm");
    };
    EXPECT_EQ(algorithm(96, 2048), "split_kv");
    EXPECT_EQ(algorithm(65, 2048), "split_kv");
    EXPECT_EQ(algorithm(64, 2048), "flash");
    EXPECT_EQ(algorithm(64, 150), "split_kv");  // two chunks of 128
    EXPECT_EQ(algorithm(64, 2048, 64), "split_kv");
    EXPECT_EQ(algorithm(97, 2048), "flash");
    EXPECT_EQ(algorithm(97, 2048, 64), "flash");
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

TEST(Info, ListsTargetsFromTheLeastCapable) {
    test::ContextPtr context = test::make_context(1);
    nlohmann::json info = test::info_of(context.get());
    EXPECT_EQ(info.at("version"), hattn_version());
    std::vector<std::string> names;
    for (const nlohmann::json &row : info.at("targets")) {
        names.push_back(row.at("name"));
    }
    EXPECT_EQ(names, test::target_names());
    EXPECT_EQ(info.at("targets").front().at("runnable"), true);
}

}  // namespace
