// Tuning databases: which entry decides about a problem, and that whatever an entry says results stay right.
#include <gtest/gtest.h>

#include <functional>

#include "support/tuned_case.h"

namespace {

using namespace hattn;
using test::choice_of;
using test::class_of;
using test::database_for;
using test::explain;
using test::json;
using test::some_case;

TEST(Tuning, TheRuleDecidesWithoutAny) {
    test::ContextPtr context = test::context_with_tuning("rule");
    const json plan = explain(context.get(), some_case(1, 700));
    EXPECT_EQ(plan.at("decided_by"), "rule");
    EXPECT_EQ(plan.at("algorithm"), "split_kv");
    EXPECT_EQ(test::info_of(context.get()).at("tuning_database").at("state"), "off");
}

TEST(Tuning, AnEntryDecidesAboutItsClass) {
    const cases::Case c = some_case(1, 700);
    const test::TuningFile file(database_for(c, choice_of(c, HATTN_ALGORITHM_NAIVE)));
    test::ContextPtr context = test::context_with_tuning(file.path());
    const json plan = explain(context.get(), c);
    EXPECT_EQ(plan.at("algorithm"), "naive");
    EXPECT_EQ(plan.at("decided_by"), "machine");
    EXPECT_NE(plan.at("why").get<std::string>().find("its class"), std::string::npos) << plan;
    const json info = test::info_of(context.get()).at("tuning_database");
    EXPECT_EQ(info.at("state"), "in use");
    EXPECT_EQ(info.at("path"), file.path());
    EXPECT_EQ(info.at("entries"), 1);
    EXPECT_STREQ(hattn_context_warning(context.get()), "");
}

TEST(Tuning, AnEntryDecidesAboutClassesNearIts) {
    const cases::Case c = some_case(4, 1024);
    const test::TuningFile file(database_for(c, choice_of(c, HATTN_ALGORITHM_NAIVE)));
    test::ContextPtr context = test::context_with_tuning(file.path());
    const auto decided_by = [&](int64_t rows, int64_t keys, int64_t query_heads = 4) {
        return explain(context.get(), some_case(rows, keys, query_heads)).at("decided_by");
    };
    for (const auto &[rows, keys] : {std::pair<int64_t, int64_t>{2, 1024}, {8, 1024}, {4, 256}, {4, 4096}, {3, 900}}) {
        EXPECT_EQ(decided_by(rows, keys), "machine") << rows << " x " << keys;
    }
    for (const auto &[rows, keys] : {std::pair<int64_t, int64_t>{1, 1024}, {16, 1024}, {4, 100}, {4, 10000}}) {
        EXPECT_NE(decided_by(rows, keys), "machine") << rows << " x " << keys;
    }
    EXPECT_EQ(decided_by(4, 1024, 8), "machine") << "the nearest number of heads per kv head";
    EXPECT_NE(explain(context.get(), c, HATTN_ALGORITHM_FLASH).at("decided_by"), "machine") << "asked for flash";
}

TEST(Tuning, TheNearestEntryWins) {
    const cases::Case near = some_case(4, 1024), far = some_case(8, 1024);
    const test::TuningFile file(
        test::tuning_document({test::tuning_entry(class_of(far), choice_of(far, HATTN_ALGORITHM_UNFUSED)),
                               test::tuning_entry(class_of(near), choice_of(near, HATTN_ALGORITHM_NAIVE))}));
    test::ContextPtr context = test::context_with_tuning(file.path());
    EXPECT_EQ(explain(context.get(), some_case(4, 300)).at("algorithm"), "naive");
    EXPECT_EQ(explain(context.get(), some_case(8, 1024)).at("algorithm"), "unfused");
    EXPECT_EQ(explain(context.get(), some_case(16, 1024)).at("algorithm"), "unfused");
}

TEST(Tuning, EntriesWithoutHooksServeProblemsWithHooks) {
    const cases::Case c = some_case(4, 1024);
    const test::TuningFile file(database_for(c, choice_of(c, HATTN_ALGORITHM_NAIVE)));
    test::ContextPtr context = test::context_with_tuning(file.path());
    cases::Case hooked = c;
    hooked.mask = cases::varying("qk");
    EXPECT_EQ(explain(context.get(), hooked).at("algorithm"), "naive");
}

// Of keys and values.
json explain_stored(hattn_context *context, const cases::Case &c, hattn_dtype dtype) {
    hattn_attention_desc desc = cases::desc_of(c);
    desc.k_dtype = desc.v_dtype = dtype;
    return test::explanation_of(test::make_plan(context, desc).get());
}

// A database with a choice for the class of the case, and one for the same in int8.
json database_for_both(const cases::Case &c, const json &of_float32, const json &of_int8) {
    json int8_class = class_of(c);
    int8_class["dtype"] = "int8";
    return test::tuning_document(
        {test::tuning_entry(class_of(c), of_float32), test::tuning_entry(int8_class, of_int8)});
}

TEST(Tuning, EntriesOfFloat32ServeWhatIsStoredInOtherTypesUntilThatHasItsOwn) {
    const cases::Case c = some_case(4, 1024);
    const test::TuningFile file(
        database_for_both(c, choice_of(c, HATTN_ALGORITHM_FLASH), choice_of(c, HATTN_ALGORITHM_NAIVE)));
    test::ContextPtr context = test::context_with_tuning(file.path());
    const json int8 = explain_stored(context.get(), c, HATTN_INT8);
    EXPECT_EQ(int8.at("algorithm"), "naive");
    EXPECT_EQ(int8.at("class").at("dtype"), "int8");
    EXPECT_EQ(int8.at("why").get<std::string>().find("float32"), std::string::npos) << int8;
    const json float16 = explain_stored(context.get(), c, HATTN_FLOAT16);
    EXPECT_EQ(float16.at("algorithm"), "flash");
    EXPECT_EQ(float16.at("decided_by"), "machine");
    EXPECT_EQ(float16.at("class").at("dtype"), "float16");
    EXPECT_NE(
        float16.at("why").get<std::string>().find("nearest class, rows 4, keys 1024, head 64, group 2, of float32"),
        std::string::npos)
        << float16;
}

TEST(Tuning, AnEmptyChoiceOfADtypeKeepsFloat32FromDeciding) {
    const cases::Case c = some_case(4, 1024);
    const test::TuningFile file(database_for_both(c, choice_of(c, HATTN_ALGORITHM_FLASH), nullptr));
    test::ContextPtr context = test::context_with_tuning(file.path());
    EXPECT_NE(explain_stored(context.get(), c, HATTN_INT8).at("decided_by"), "machine");
    EXPECT_EQ(explain_stored(context.get(), c, HATTN_INT4).at("decided_by"), "machine");
}

TEST(Tuning, NaiveOfFloat32ServesNoOtherType) {
    const cases::Case c = some_case(4, 1024);
    const test::TuningFile file(database_for(c, choice_of(c, HATTN_ALGORITHM_NAIVE)));
    test::ContextPtr context = test::context_with_tuning(file.path());
    EXPECT_EQ(explain(context.get(), c).at("algorithm"), "naive");
    EXPECT_EQ(explain_stored(context.get(), c, HATTN_INT8).at("decided_by"), "rule");
}

TEST(Tuning, AnEmptyChoiceLeavesTheDefault) {
    const cases::Case c = some_case(1, 700);
    const test::TuningFile file(database_for(c, nullptr));
    test::ContextPtr context = test::context_with_tuning(file.path());
    const json plan = explain(context.get(), c);
    EXPECT_NE(plan.at("decided_by"), "machine");
    EXPECT_NE(plan.at("why").get<std::string>().find("says for rows 1, keys 512 that the default stays; "),
              std::string::npos)
        << plan;
    EXPECT_EQ(test::info_of(context.get()).at("tuning_database").at("entries"), 1);
}

// Whose entry is named, where it is another class's.
TEST(Tuning, TheClassOfTheEntryThatDecidesIsNamed) {
    const cases::Case c = some_case(4, 1024);
    const test::TuningFile file(database_for(c, choice_of(c, HATTN_ALGORITHM_NAIVE)));
    test::ContextPtr context = test::context_with_tuning(file.path());
    cases::Case other = some_case(8, 2048, 8, 1);
    other.key_dim = other.value_dim = 128;
    other.alibi = true;
    const json plan = explain(context.get(), other);
    EXPECT_EQ(plan.at("decided_by"), "machine");
    EXPECT_NE(
        plan.at("why").get<std::string>().find("nearest class, rows 4, keys 1024, head 64, group 2, hooks none, "),
        std::string::npos)
        << plan;
}

TEST(Tuning, KeysBeyondTheLastClassHaveNone) {
    const cases::Case c = some_case(1, 60000);
    const test::TuningFile file(database_for(c, choice_of(c, HATTN_ALGORITHM_SPLIT_KV)));
    test::ContextPtr context = test::context_with_tuning(file.path());
    EXPECT_EQ(explain(context.get(), some_case(1, 92681)).at("class").at("keys"), 65536);
    const json plan = explain(context.get(), some_case(1, 92682));
    EXPECT_EQ(plan.at("class"), nullptr);
    EXPECT_EQ(plan.at("decided_by"), "rule");
    EXPECT_TRUE(plan.at("why").get<std::string>().starts_with("more keys than the last class of tunings has, 65536; "))
        << plan;
    cases::Case windowed = some_case(1, 92682);
    windowed.window_left = 999;
    EXPECT_EQ(explain(context.get(), windowed).at("class").at("keys"), 1024);
}

TEST(Tuning, ATileThatNoKernelHasLeavesTheDefault) {
    const cases::Case c = some_case(1, 700);
    json choice = choice_of(c, HATTN_ALGORITHM_FLASH);
    choice["tile"]["rows"] = 7;
    const test::TuningFile file(database_for(c, choice));
    test::ContextPtr context = test::context_with_tuning(file.path());
    const json plan = explain(context.get(), c);
    EXPECT_NE(plan.at("decided_by"), "machine");
    EXPECT_NE(plan.at("why").get<std::string>().find("names a tile of 7 rows"), std::string::npos) << plan;
}

// Decoding reads keys as often as it was measured to, whatever the number of rows is.
TEST(Tuning, OtherRowsOfAClassGetATileThatHoldsThem) {
    const cases::Case measured = some_case(1, 700, 8, 2), other = some_case(1, 700, 10, 2);
    const test::TuningFile file(database_for(measured, choice_of(measured, HATTN_ALGORITHM_SPLIT_KV)));
    test::ContextPtr context = test::context_with_tuning(file.path());
    EXPECT_EQ(explain(context.get(), measured).at("tile").at("rows"), 4);
    const json plan = explain(context.get(), other);
    EXPECT_EQ(plan.at("decided_by"), "machine");
    EXPECT_GE(plan.at("tile").at("rows"), 5);
}

// 64 rows of a kv head read keys more often than 28 do by the same tile.
TEST(Tuning, FewerRowsReadKeysNoMoreOftenThanTheyNeed) {
    const cases::Case measured = some_case(16, 700, 8, 2), other = some_case(7, 700, 8, 2);
    const test::TuningFile file(database_for(measured, choice_of(measured, HATTN_ALGORITHM_SPLIT_KV)));
    test::ContextPtr context = test::context_with_tuning(file.path());
    const json plan = explain(context.get(), other);
    EXPECT_EQ(plan.at("decided_by"), "machine");
    EXPECT_EQ(plan.at("tile"), explain(context.get(), measured).at("tile"));
}

// With a window, tiles of other rows start at other keys.
TEST(Tuning, InvariantEntriesAreNotForWindows) {
    cases::Case c = some_case(200, 700);
    const test::TuningFile file(database_for(c, choice_of(c, HATTN_ALGORITHM_FLASH), true));
    test::ContextPtr context = test::context_with_tuning(file.path());
    EXPECT_EQ(explain(context.get(), c).at("decided_by"), "machine");
    EXPECT_EQ(test::info_of(context.get()).at("tuning_database").at("invariant"), true);
    c.window_left = 600;
    EXPECT_NE(explain(context.get(), c).at("decided_by"), "machine");
}

// Lengths of one class may have several defaults.
TEST(Tuning, InvariantEntriesDecideWhereTheDefaultSumsAlike) {
    const cases::Case c = some_case(200, 700);
    const json choice = choice_of(c, HATTN_ALGORITHM_SPLIT_KV);
    for (const bool invariant : {false, true}) {
        const test::TuningFile file(database_for(c, choice, invariant));
        const json plan = explain(test::context_with_tuning(file.path()).get(), c);
        EXPECT_EQ(plan.at("decided_by") == "machine", !invariant);
        EXPECT_EQ(plan.at("algorithm"), invariant ? "flash" : "split_kv");
    }
}

// Of two tiles of a class one may hold rows along its vectors and one elements of the head, or, of eight rows with
// AVX-512, four elements of four rows; tiles of integers differ in more than that.
TEST(Tuning, InvariantEntriesDecideWhereTilesSumAlike) {
    const cases::Case measured = some_case(2, 512, 4, 1), other = some_case(2, 512, 5, 1);
    json choice = choice_of(other, HATTN_ALGORITHM_SPLIT_KV);
    if (choice.at("tile").at("rows").get<int>() <= 8) {
        GTEST_SKIP() << "no tile of this target holds the head for one of them, and rows for the other";
    }
    const json eight = choice_of(measured, HATTN_ALGORITHM_SPLIT_KV);
    json four = eight;
    four["tile"] = choice_of(some_case(1, 512, 4, 1), HATTN_ALGORITHM_SPLIT_KV).at("tile");
    test::ContextPtr plain = test::context_with_tuning("none");
    const bool by_quads = explain(plain.get(), measured).at("target") == "x86-avx512";
    for (const auto &[small, alike] : {std::pair(four, !by_quads), {eight, true}}) {
        const test::TuningFile file(database_for(measured, small, true));
        test::ContextPtr context = test::context_with_tuning(file.path());
        EXPECT_EQ(explain(context.get(), measured).at("decided_by") == "machine", alike) << small;
        EXPECT_TRUE(small == eight || explain(context.get(), other).at("decided_by") != "machine");
        EXPECT_EQ(explain(context.get(), other).at("kernel"), explain(plain.get(), other).at("kernel"));
    }
}

// Of a kernel like the plan's that multiplies float32 as it is, with other rows; null if there is none.
json tile_of_other_rows(hattn_context *context, const json &plan) {
    const json info = test::info_of(context);
    json found;
    for (const json &kernel : info.at("kernels")) {
        if (kernel.at("algorithm") == plan.at("algorithm") && kernel.at("target") == plan.at("target") &&
            kernel.at("storage") == "float32" && kernel.at("hooks").empty() &&
            kernel.at("tile").at("keys") == plan.at("tile").at("keys") &&
            kernel.at("tile").at("rows") != plan.at("tile").at("rows")) {
            found = kernel.at("tile");
        }
    }
    return found;
}

// Of two tiles of flash the one with fewer rows may have all of its keys in one part, to which the sink goes.
TEST(Tuning, InvariantEntriesAreNotForSinksInOtherTiles) {
    cases::Case c = some_case(86, 4000, 2, 2);
    test::ContextPtr plain = test::context_with_tuning("rule");
    json choice = choice_of(c, HATTN_ALGORITHM_FLASH);
    choice["tile"] = tile_of_other_rows(plain.get(), explain(plain.get(), c, HATTN_ALGORITHM_FLASH));
    const test::TuningFile file(database_for(c, choice, true));
    if (choice.at("tile").is_null() ||
        explain(test::context_with_tuning(file.path()).get(), c).at("decided_by") != "machine") {
        GTEST_SKIP() << "this machine has no two tiles that sum alike";
    }
    c.sinks = cases::Sinks::kNormal;
    EXPECT_NE(explain(test::context_with_tuning(file.path()).get(), c).at("decided_by"), "machine");
    const test::TuningFile other(database_for(c, choice));
    EXPECT_EQ(explain(test::context_with_tuning(other.path()).get(), c).at("decided_by"), "machine");
}

TEST(Tuning, InvariantEntriesOfIntegersAreForTheSameTile) {
    const cases::Case c = some_case(1, 1024, 4, 1), one = some_case(1, 1024, 1, 1);
    test::ContextPtr plain = test::context_with_tuning("none");
    const json plan = explain_stored(plain.get(), c, HATTN_INT8);
    json choice = {{"algorithm", plan.at("algorithm")},
                   {"tile", plan.at("tile")},
                   {"split_keys", plan.at("split_keys")},
                   {"heads", 0}};
    const auto decided_by = [&] {
        const test::TuningFile file(test::tuning_document({test::tuning_entry(plan.at("class"), choice, true)}));
        return explain_stored(test::context_with_tuning(file.path()).get(), c, HATTN_INT8).at("decided_by");
    };
    EXPECT_EQ(decided_by(), "machine");
    choice["tile"] = explain_stored(plain.get(), one, HATTN_INT8).at("tile");
    ASSERT_NE(choice.at("tile"), plan.at("tile"));
    EXPECT_NE(decided_by(), "machine");
}

TEST(Tuning, ForcedKernelsComeFirst) {
    const cases::Case c = some_case(1, 700);
    const test::TuningFile file(database_for(c, choice_of(c, HATTN_ALGORITHM_NAIVE)));
    test::ContextPtr plain = test::context_with_tuning("rule");
    const std::string kernel = explain(plain.get(), c).at("kernel");
    hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
    desc.tuning_database = file.path().c_str();
    test::ContextPtr context = test::new_context("kernel=" + kernel, &desc).context;
    EXPECT_EQ(explain(context.get(), c).at("kernel"), kernel);
}

struct Decision {
    hattn_algorithm algorithm;
    int64_t split_keys;  // 0: as usual
    int64_t heads;
};

using Param = std::tuple<Decision, std::pair<int64_t, int64_t>>;

class Tuned : public testing::TestWithParam<Param> {};

// Entries make workspaces and waves of other sizes, in which everything still has to fit.
TEST_P(Tuned, ResultsAreRight) {
    const auto &[decision, lengths] = GetParam();
    cases::Case c = some_case(lengths.first, lengths.second);
    c.batch = 2;
    json choice = choice_of(c, decision.algorithm);
    choice["split_keys"] = decision.split_keys > 0 ? json(decision.split_keys) : choice["split_keys"];
    choice["heads"] = decision.heads;
    const test::TuningFile file(database_for(c, choice));
    test::ContextPtr context = test::context_with_tuning(file.path());
    ASSERT_EQ(explain(context.get(), c).at("decided_by"), "machine");
    if (decision.algorithm != HATTN_ALGORITHM_FLASH) {
        EXPECT_EQ(explain(context.get(), c).at("split_keys"), choice["split_keys"]);
    }
    for (const bool windowed : {false, true}) {
        c.window_left = windowed ? 3 * c.kv_length / 4 : -1;
        c.kv_lengths = {static_cast<int32_t>(c.kv_length), static_cast<int32_t>(c.kv_length / 3 + 1)};
        test::Prepared data(c);
        // Before what is counted: threads are made then.
        ASSERT_TRUE(test::run(context.get(), data.problem, HATTN_ALGORITHM_AUTO, 7).ok());
        const std::vector<float> of_seven_threads = test::output_values(data.problem);
        const test::Outcome outcome = test::run(context.get(), data.problem);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        EXPECT_EQ(outcome.allocations, 0u);
        EXPECT_EQ(cases::difference(data.problem, data.expected), "");
        EXPECT_TRUE(test::same_bits(test::output_values(data.problem), of_seven_threads));
    }
}

constexpr Decision kDecisions[] = {
    {HATTN_ALGORITHM_NAIVE, 0, 1},     {HATTN_ALGORITHM_FLASH, 0, 0},      {HATTN_ALGORITHM_FLASH, 0, 2},
    {HATTN_ALGORITHM_SPLIT_KV, 16, 0}, {HATTN_ALGORITHM_SPLIT_KV, 128, 0}, {HATTN_ALGORITHM_SPLIT_KV, 8192, 0},
    {HATTN_ALGORITHM_UNFUSED, 256, 0}, {HATTN_ALGORITHM_UNFUSED, 4096, 0},
};
constexpr std::pair<int64_t, int64_t> kLengths[] = {{1, 5000}, {3, 700}, {40, 300}, {130, 130}};

std::string name_of(const testing::TestParamInfo<Param> &run) {
    const Decision decision = std::get<0>(run.param);
    const std::pair<int64_t, int64_t> lengths = std::get<1>(run.param);
    return std::string(test::algorithm_name(decision.algorithm)) + "_" + std::to_string(decision.split_keys) + "_" +
           std::to_string(decision.heads) + "__" + std::to_string(lengths.first) + "_" + std::to_string(lengths.second);
}
INSTANTIATE_TEST_SUITE_P(All, Tuned, testing::Combine(testing::ValuesIn(kDecisions), testing::ValuesIn(kLengths)),
                         name_of);

// A plan for long sequences serves short ones, which other entries decide about.
TEST(Tuned, APlanHasRoomForWhatAnyEntryDecides) {
    const cases::Case small = some_case(1, 64), large = some_case(1, 5000);
    json choice = choice_of(small, HATTN_ALGORITHM_SPLIT_KV);
    choice["split_keys"] = 16;
    const test::TuningFile file(database_for(small, choice));
    test::ContextPtr context = test::context_with_tuning(file.path());
    test::PlanPtr plan = test::make_plan(context.get(), cases::desc_of(large));
    for (int64_t keys : {1, 64, 90, 200, 360, 5000}) {
        test::Prepared data(some_case(1, keys));
        const test::Outcome outcome = test::execute(plan.get(), data.problem.args);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        EXPECT_EQ(cases::difference(data.problem, data.expected), "") << keys;
    }
}

}  // namespace
