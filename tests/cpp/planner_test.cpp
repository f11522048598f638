// What a plan says about itself, and that every way to force a choice is obeyed.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "support/json_text.h"
#include "support/refusal.h"
#include "support/run.h"
#include "support/some_desc.h"
#include "support/targets.h"

namespace {

using namespace hattn;

TEST(Explain, SaysWhatThePlanIs) {
    test::ContextPtr context = test::make_context();
    test::PlanPtr plan = test::make_plan(context.get(), test::some_desc());
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

TEST(Explain, NamesWhatIsForced) {
    for (const std::string words : {"target=generic", "algorithm=naive", "kernel=merge_generic"}) {
        test::ContextPtr context = test::make_context(1, words);
        test::PlanPtr plan = test::make_plan(context.get(), test::some_desc());
        const nlohmann::json explanation = test::explanation_of(plan.get());
        EXPECT_TRUE(explanation.at("why").get<std::string>().starts_with("HATTN_FORCE=" + words + "; ")) << explanation;
    }
}

TEST(Explain, NamesAKernelOfTheTable) {
    test::ContextPtr context = test::make_context();
    const nlohmann::json kernels = test::info_of(context.get()).at("kernels");
    for (int64_t query_length : {1, 7, 300}) {
        for (int64_t kv_length : {1, 64, 5000}) {
            test::PlanPtr plan = test::make_plan(context.get(), test::some_desc(query_length, kv_length));
            nlohmann::json name = test::explanation_of(plan.get()).at("kernel");
            EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(), [&](const nlohmann::json &row) {
                return row.at("name") == name && row.at("runnable") == true;
            })) << name;
        }
    }
}

TEST(Explain, NamesBothKernelsOfUnfused) {
    test::ContextPtr context = test::make_context();
    hattn_attention_desc desc = test::some_desc();
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
            const nlohmann::json plan = test::explanation_of(test::make_plan(context.get(), test::some_desc()).get());
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
        hattn_attention_desc desc = test::some_desc();
        desc.algorithm = algorithm;
        test::PlanPtr plan = test::make_plan(context.get(), desc);
        EXPECT_EQ(test::explanation_of(plan.get()).at("algorithm"), test::algorithm_name(algorithm));
    }
}

TEST(Force, AlgorithmByTheEnvironment) {
    for (const char *algorithm : {"naive", "flash", "split_kv", "unfused"}) {
        test::ContextPtr context = test::make_context(1, std::string("algorithm=") + algorithm);
        for (int64_t query_length : {1, 200}) {
            test::PlanPtr plan = test::make_plan(context.get(), test::some_desc(query_length));
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
            test::PlanPtr plan = test::make_plan(implementation.context.get(), test::some_desc());
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
    hattn_attention_desc desc = test::some_desc();
    hattn_plan *plan = nullptr;
    test::Outcome outcome = test::outcome_of(hattn_plan_create(context.get(), &desc, &plan), context.get());
    EXPECT_EQ(test::mismatch(outcome, {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", with_softcap}}), "");
    EXPECT_EQ(plan, nullptr);
}

TEST(Force, KernelWithMoreHooksThanTheProblemIsTaken) {
    const std::string with_more = generic_flash_kernel({"bias", "alibi", "mask"});
    ASSERT_NE(with_more, "");
    test::ContextPtr context = test::make_context(1, "kernel=" + with_more);
    test::PlanPtr plan = test::make_plan(context.get(), test::some_desc());
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
