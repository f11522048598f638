// Loading kernel packs: their kernels run by force, nothing else changes, and a file that is not sound stays outside.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <locale>

#include "case_list.h"
#include "hattn/hattn.hpp"
#include "runtime/kernel_registry.h"
#include "runtime/pack_file.h"
#include "scoped_variable.h"
#include "support/json_text.h"
#include "support/pack.h"
#include "support/refusal.h"
#include "support/run.h"
#include "support/targets.h"

namespace {

using namespace hattn;

class Packs : public testing::Test {
protected:
    void SetUp() override {
        if (!test::sample_pack()) {
            GTEST_SKIP() << "this build has no hattn-kernelgen, so no pack";
        }
    }

    test::ContextPtr context_with_sample(const std::string &force) {
        const cases::ScopedVariable packs("HATTN_PACKS", test::sample_pack());
        return test::make_context(1, force);  // further threads allocate when they start
    }

    // What loading a file with these bytes says.
    test::Outcome load(const std::string &bytes) {
        test::write_bytes(folder_.file("pack.so"), bytes);
        return test::outcome_of(hattn_context_load_kernels(context_.get(), folder_.file("pack.so").c_str()));
    }

    std::string refusal(const std::string &bytes, const test::Refusal &expected) {
        test::Outcome outcome = load(bytes);
        if (outcome.message.find(folder_.file("pack.so")) == std::string::npos) {
            return "the sentence does not name the file: " + outcome.text();
        }
        return test::mismatch(outcome, expected);
    }

    size_t kernel_count() {
        return test::info_of(context_.get()).at("kernels").size();
    }

    test::TestFolder folder_;
    test::ContextPtr context_ = test::make_context();
};

cases::Case some_case(const std::string &hooks) {
    cases::Case c;
    c.name = "packs";
    c.query_length = 45;
    c.kv_length = 131;
    c.causal = true;
    if (hooks == "mask") {
        c.mask = cases::varying("qk");
    }
    return c;
}

TEST_F(Packs, KernelsRunByForce) {
    for (const auto &[kernel, hooks] : {std::pair(test::kSampleFlash, ""), std::pair(test::kSampleSplit, "mask")}) {
        test::ContextPtr context = context_with_sample(std::string("kernel=") + kernel);
        test::Prepared data(some_case(hooks));
        test::Outcome outcome = test::run(context.get(), data.problem);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        EXPECT_EQ(cases::difference(data.problem, data.expected), "") << kernel;
        EXPECT_EQ(outcome.allocations, 0u) << kernel;
        test::PlanPtr plan = test::make_plan(context.get(), data.problem.desc);
        const nlohmann::json explanation = test::explanation_of(plan.get());
        EXPECT_EQ(explanation.at("kernel"), kernel);
        EXPECT_EQ(explanation.at("pack"), test::sample_pack());
    }
}

TEST_F(Packs, InfoTellsWhereKernelsAreFrom) {
    const size_t before = kernel_count();
    ASSERT_EQ(hattn_context_load_kernels(context_.get(), test::sample_pack()), HATTN_OK);
    const nlohmann::json info = test::info_of(context_.get());
    EXPECT_EQ(info.at("kernels").size(), before + 2);
    for (const nlohmann::json &kernel : info.at("kernels")) {
        const bool ours = kernel.at("name") == test::kSampleFlash || kernel.at("name") == test::kSampleSplit;
        EXPECT_EQ(kernel.at("pack"), ours ? nlohmann::json(test::sample_pack()) : nlohmann::json()) << kernel;
    }
    EXPECT_EQ(info.at("packs").size(), 1u);
    EXPECT_EQ(info.at("packs")[0].at("kernels"), 2);
    EXPECT_EQ(info.at("warnings").size(), 0u);
}

TEST_F(Packs, LoadFromCpp) {
    hattn::Context context;
    context.load_kernels(test::sample_pack());
    EXPECT_NE(context.info().find(test::kSampleFlash), std::string::npos);
    EXPECT_THROW(context.load_kernels("/nowhere/pack.so"), hattn::Error);
}

// But for the workspace, which has room for what a tuning might choose.
nlohmann::json choice_of(hattn_context *context, const hattn_attention_desc &desc) {
    nlohmann::json explanation = test::explanation_of(test::make_plan(context, desc).get());
    explanation.erase("workspace_bytes");
    return explanation;
}

TEST_F(Packs, LoadingChangesNoChoice) {
    for (const char *hooks : {"", "mask"}) {
        for (int64_t rows : {1, 5, 45}) {
            cases::Case c = some_case(hooks);
            c.query_length = rows;
            hattn_attention_desc desc = cases::desc_of(c);
            test::ContextPtr with = context_with_sample("target=generic");
            test::ContextPtr without = test::make_context(1, "target=generic");
            EXPECT_EQ(choice_of(with.get(), desc), choice_of(without.get(), desc));
        }
    }
}

TEST_F(Packs, StayLoadedAsLongAsAPlanNeedsThem) {
    test::Prepared data(some_case(""));
    test::ContextPtr context = context_with_sample(std::string("kernel=") + test::kSampleFlash);
    test::PlanPtr plan = test::make_plan(context.get(), data.problem.desc);
    context.reset();
    test::Outcome outcome = test::execute(plan.get(), data.problem.args);
    ASSERT_TRUE(outcome.ok()) << outcome.text();
    EXPECT_EQ(cases::difference(data.problem, data.expected), "");
}

TEST_F(Packs, LoadingTwiceIsHarmless) {
    const size_t before = kernel_count();
    ASSERT_EQ(hattn_context_load_kernels(context_.get(), test::sample_pack()), HATTN_OK);
    ASSERT_EQ(hattn_context_load_kernels(context_.get(), test::sample_pack()), HATTN_OK);
    EXPECT_EQ(kernel_count(), before + 2);
}

TEST_F(Packs, WrongStampsAreRefused) {
    struct Wrong {
        const char *from, *to;
        hattn_status status;
        std::vector<std::string> words;
    };
    const std::string version = hattn_version();
    for (const Wrong &wrong : {
             Wrong{"\"library\":\"", "\"library\":\"9", HATTN_NOT_SUPPORTED, {"9" + version, version}},
             Wrong{"\"contract\":\"", "\"contract\":\"f", HATTN_NOT_SUPPORTED, {"contract"}},
             Wrong{"\"target\":\"generic\"", "\"target\":\"z80\"", HATTN_NOT_SUPPORTED, {test::kSampleFlash, "z80"}},
             Wrong{"\"kind\":\"flash\"", "\"kind\":\"spark\"", HATTN_NOT_SUPPORTED, {test::kSampleFlash, "spark"}},
             Wrong{"\"hooks\":[]", "\"hooks\":[\"fish\"]", HATTN_NOT_SUPPORTED, {test::kSampleFlash, "fish"}},
             Wrong{"_argv\"", "_gone\"", HATTN_INVALID_ARGUMENT, {"missing"}},
             Wrong{"\"kernels\"", "\"colonels\"", HATTN_INVALID_ARGUMENT, {"kernels"}},
             Wrong{"\"tile\":[32,", "\"tile\":[\"many\",", HATTN_INVALID_ARGUMENT, {"string"}},
             Wrong{"{", "", HATTN_INVALID_ARGUMENT, {"parse"}},
         }) {
        const std::string bytes = test::changed_pack(
            [&](std::string &, std::string &text) { test::replace_once(text, wrong.from, wrong.to); });
        EXPECT_EQ(refusal(bytes, {wrong.status, wrong.words}), "") << wrong.to;
    }
    EXPECT_EQ(test::info_of(context_.get()).at("packs").size(), 0u);
}

TEST_F(Packs, OfOtherFormatsAreRefused) {
    std::string bytes = test::read_bytes(test::sample_pack());
    const uint64_t format = 77;
    std::memcpy(bytes.data() + bytes.size() - sizeof(PackTrailer) + offsetof(PackTrailer, format), &format,
                sizeof(format));
    EXPECT_EQ(refusal(bytes, {HATTN_NOT_SUPPORTED, {"77", "1"}}), "");
}

TEST_F(Packs, ForCpusThisOneIsNotAreRefused) {
    for (const std::string &target : test::target_names()) {
        if (test::context_for(target).context) {
            continue;
        }
        const std::string bytes = test::changed_pack([&](std::string &, std::string &text) {
            test::replace_once(text, "\"target\":\"generic\"", "\"target\":\"" + target + "\"");
        });
        EXPECT_EQ(refusal(bytes, {HATTN_NOT_SUPPORTED, {test::kSampleFlash, "lacks"}}), "") << target;
    }
    // The machine that the ELF header names.
    constexpr size_t kMachine = 18;
    const std::string bytes =
        test::changed_pack([](std::string &object, std::string &) { object.at(kMachine) ^= 0x55; });
    EXPECT_EQ(refusal(bytes, {HATTN_INVALID_ARGUMENT, {"pack.so"}}), "");
}

TEST_F(Packs, DamageAnywhereIsNoticed) {
    const std::string good = test::read_bytes(test::sample_pack());
    for (size_t i = 0; i < 100; ++i) {
        const size_t at = i * (good.size() - 1) / 99;
        std::string flipped = good;
        flipped[at] = static_cast<char>(flipped[at] ^ (1 << i % 8));
        EXPECT_NE(load(flipped).status, HATTN_OK) << "byte " << at;
        EXPECT_EQ(refusal(good.substr(0, at), {HATTN_INVALID_ARGUMENT, {std::to_string(at)}}), "");
    }
    EXPECT_EQ(refusal("#!/bin/sh\n", {HATTN_INVALID_ARGUMENT, {"10"}}), "");
    EXPECT_EQ(load(good).text(), "HATTN_OK: ");
}

TEST_F(Packs, AnotherFileOfTheNameInUseIsRefused) {
    ASSERT_TRUE(load(test::read_bytes(test::sample_pack())).ok());
    const std::string other = test::changed_pack([](std::string &object, std::string &text) {
        constexpr size_t kDigits = 16;
        const size_t at = text.find("\"id\":\"") + 6;
        const uint64_t id = std::stoull(text.substr(at, kDigits), nullptr, 16), changed = id ^ 1;
        std::string before(sizeof(id), 0), after(sizeof(id), 0);
        std::memcpy(before.data(), &id, sizeof(id));
        std::memcpy(after.data(), &changed, sizeof(id));
        test::replace_once(object, before, after);
        text.replace(at, kDigits, hash_text(changed));
    });
    EXPECT_EQ(refusal(other, {HATTN_NOT_SUPPORTED, {"in", "use"}}), "");
    context_ = test::make_context();
    EXPECT_EQ(load(other).text(), "HATTN_OK: ");
}

TEST_F(Packs, OfAFolderTheSoundOnesAreLoaded) {
    const std::string good = test::read_bytes(test::sample_pack());
    test::write_bytes(folder_.file("good.so"), good);
    test::write_bytes(folder_.file("damaged.so"), good.substr(0, good.size() / 2));
    test::write_bytes(folder_.file("foreign.so"), test::changed_pack([](std::string &, std::string &text) {
                          test::replace_once(text, "\"library\":\"", "\"library\":\"9");
                      }));
    test::write_bytes(folder_.file("notes.txt"), "not a pack");
    ASSERT_EQ(hattn_context_load_kernels(context_.get(), folder_.path().c_str()), HATTN_OK);
    const nlohmann::json info = test::info_of(context_.get());
    ASSERT_EQ(info.at("packs").size(), 1u);
    EXPECT_EQ(info.at("packs")[0].at("path"), folder_.file("good.so"));
    ASSERT_EQ(info.at("warnings").size(), 2u);
    EXPECT_NE(std::string(info.at("warnings")[0]).find(folder_.file("damaged.so")), std::string::npos);
    EXPECT_NE(std::string(info.at("warnings")[1]).find(folder_.file("foreign.so")), std::string::npos);
}

TEST_F(Packs, FoldersInAFolderAreNoPacks) {
    test::write_bytes(folder_.file("good.so"), test::read_bytes(test::sample_pack()));
    ASSERT_TRUE(std::filesystem::create_directory(folder_.file("folder.so")));
    ASSERT_EQ(hattn_context_load_kernels(context_.get(), folder_.path().c_str()), HATTN_OK)
        << hattn_last_error(nullptr);
    const nlohmann::json info = test::info_of(context_.get());
    EXPECT_EQ(info.at("packs").size(), 1u);
    EXPECT_TRUE(info.at("warnings").empty());
}

// Hashes are text, which streams write as the application's locale has it.
TEST_F(Packs, LoadWhereNumbersAreGrouped) {
    struct Grouped : std::numpunct<char> {
        std::string do_grouping() const override {
            return "\3";
        }
    };
    const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouped));
    const test::Outcome outcome = load(test::read_bytes(test::sample_pack()));
    const test::Outcome refused = load("no pack" + std::string(2000, '.'));
    std::locale::global(before);
    EXPECT_TRUE(outcome.ok()) << outcome.text();
    EXPECT_NE(refused.message.find("2007 bytes"), std::string::npos) << refused.message;
}

TEST_F(Packs, ListsHoldFilesAndFolders) {
    test::write_bytes(folder_.file("copy.so"), test::read_bytes(test::sample_pack()));
    const cases::ScopedVariable packs("HATTN_PACKS", std::string(test::sample_pack()) + "::" + folder_.path());
    EXPECT_EQ(test::info_of(test::make_context().get()).at("packs").size(), 2u);
}

TEST(Candidates, HaveTheNamesOfKernels) {
    int same = 0;
    const KernelTable &table = kernel_table();
    for (size_t i = 0; i < table.candidate_count; ++i) {
        const CandidateInfo &candidate = table.candidates[i];
        for (uint32_t hooks :
             {hook_bit("softcap"), hook_bit("mask"), hook_bit("bias") | hook_bit("alibi") | hook_bit("mask")}) {
            if (const KernelInfo *kernel = find_kernel(kernel_name(candidate, hooks))) {
                EXPECT_EQ(kernel->hooks, hooks) << kernel->name;
                EXPECT_EQ(kernel->kind, candidate.kind) << kernel->name;
                EXPECT_STREQ(kernel->target, candidate.target) << kernel->name;
                EXPECT_EQ(kernel->tile.rows, candidate.tile.rows) << kernel->name;
                EXPECT_EQ(kernel->tile.keys, candidate.tile.keys) << kernel->name;
                ++same;
            }
        }
    }
    EXPECT_GT(same, 0);
}

TEST(PackErrors, Arguments) {
    test::ContextPtr context = test::make_context();
    const auto load = [&](const char *path) {
        return test::outcome_of(hattn_context_load_kernels(context.get(), path));
    };
    EXPECT_EQ(test::mismatch(load(nullptr), {HATTN_INVALID_ARGUMENT, {"path", "null"}}), "");
    EXPECT_EQ(test::mismatch(load(""), {HATTN_INVALID_ARGUMENT, {"path", "empty"}}), "");
    EXPECT_EQ(test::mismatch(load("/dev/zero"), {HATTN_INVALID_ARGUMENT, {"/dev/zero", "not a file"}}), "");
    EXPECT_EQ(test::mismatch(load("/nowhere/pack.so"), {HATTN_INVALID_ARGUMENT, {"/nowhere/pack.so", "No such file"}}),
              "");
    EXPECT_EQ(test::mismatch(test::outcome_of(hattn_context_load_kernels(nullptr, "pack.so")),
                             {HATTN_INVALID_ARGUMENT, {"context"}}),
              "");
}

TEST(PackErrors, TheEnvironmentNamesAFileThatIsNotThere) {
    const cases::ScopedVariable packs("HATTN_PACKS", "/nowhere/pack.so");
    EXPECT_EQ(
        test::mismatch(test::new_context().outcome, {HATTN_INVALID_ARGUMENT, {"HATTN_PACKS", "/nowhere/pack.so"}}), "");
}

}  // namespace
