// Tuning databases that are no good: ignored with a sentence, never fatal.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "support/tuned_case.h"

namespace {

using namespace hattn;
using test::choice_of;
using test::database_for;
using test::explain;
using test::json;
using test::some_case;

struct BadFile {
    const char *name;
    std::function<void(json &)> change;
    const char *why;
};

const BadFile kBadFiles[] = {
    {"format", [](json &d) { d["format"] = "wisdom"; }, "no tuning database"},
    {"version", [](json &d) { d["version"] = 2; }, "version is 2"},
    {"library", [](json &d) { d["stamp"]["library"] = "9.9.9"; }, "library \"9.9.9\""},
    {"kernels", [](json &d) { d["stamp"]["kernels"] = "0"; }, "kernels \"0\""},
    {"cpu", [](json &d) { d["stamp"]["cpu"] = "Z80"; }, "cpu \"Z80\""},
    {"cores", [](json &d) { d["stamp"]["cores"] = 4711; }, "cores 4711"},
    {"caches", [](json &d) { d["stamp"]["caches"]["l2"] = 1; }, "caches"},
    {"no_stamp", [](json &d) { d.erase("stamp"); }, "damaged"},
    {"no_class", [](json &d) { d["entries"][0].erase("class"); }, "damaged"},
    {"target", [](json &d) { d["entries"][0]["class"]["target"] = "z80"; }, "unknown target"},
    {"rows", [](json &d) { d["entries"][0]["class"]["rows"] = 3; }, "power of two"},
    {"threads", [](json &d) { d["entries"][0]["class"]["threads"] = 2; }, "threads is 2, but must be 0"},
    {"algorithm", [](json &d) { d["entries"][0]["choice"]["algorithm"] = "fast"; }, "unknown algorithm"},
    {"split", [](json &d) { d["entries"][0]["choice"]["split_keys"] = 500; }, "multiple of 16"},
    {"long_split", [](json &d) { d["entries"][0]["choice"]["split_keys"] = 1 << 20; }, "split_keys is 1048576"},
    {"type", [](json &d) { d["entries"] = 7; }, "damaged"},
};

class BadTuningFile : public testing::TestWithParam<size_t> {};

// Ignored with a sentence, never fatal, and as a whole.
TEST_P(BadTuningFile, IsIgnoredWithAWarning) {
    const BadFile &bad = kBadFiles[GetParam()];
    const cases::Case c = some_case(1, 700);
    json document = database_for(c, choice_of(c, HATTN_ALGORITHM_SPLIT_KV));
    bad.change(document);
    const test::TuningFile file(document);
    test::ContextPtr context = test::context_with_tuning(file.path());
    ASSERT_TRUE(context);
    const std::string warning = hattn_context_warning(context.get());
    EXPECT_NE(warning.find(bad.why), std::string::npos) << warning;
    EXPECT_NE(warning.find(file.path()), std::string::npos) << warning;
    EXPECT_EQ(warning.find('\n'), std::string::npos) << warning;
    EXPECT_EQ(test::info_of(context.get()).at("tuning_database").at("state"), "ignored");
    EXPECT_NE(explain(context.get(), c).at("decided_by"), "machine");
}
INSTANTIATE_TEST_SUITE_P(Each, BadTuningFile, testing::Range<size_t>(0, std::size(kBadFiles)),
                         [](const auto &run) { return kBadFiles[run.param].name; });

// The tuner replaces what was a database, and nothing else.
TEST(TuningFile, TheWarningSaysWhatTheTunerDoes) {
    const cases::Case c = some_case(1, 700);
    json document = database_for(c, choice_of(c, HATTN_ALGORITHM_SPLIT_KV));
    document.erase("entries");
    for (const auto &[text, remedy] : {std::pair<std::string, const char *>{document.dump(), "makes a new one"},
                                       {"", "makes a new one"},
                                       {R"({"name": "other"})", "leaves it alone"},
                                       {"garbage", "leaves it alone"}}) {
        const test::TuningFile file(text);
        test::ContextPtr context = test::context_with_tuning(file.path());
        ASSERT_TRUE(context);
        const std::string warning = hattn_context_warning(context.get());
        EXPECT_TRUE(warning.ends_with(std::string("; hattn tune ") + remedy)) << warning;
    }
}

TEST(TuningFile, CutOffAnywhereIsIgnored) {
    const cases::Case c = some_case(1, 700);
    const std::string text = database_for(c, choice_of(c, HATTN_ALGORITHM_NAIVE)).dump();
    for (size_t length = 0; length < text.size(); length += 97) {
        const test::TuningFile file(text.substr(0, length));
        test::ContextPtr context = test::context_with_tuning(file.path());
        EXPECT_NE(std::string(hattn_context_warning(context.get())), "") << length;
        EXPECT_NE(explain(context.get(), c).at("decided_by"), "machine") << length;
    }
}

TEST(TuningFile, WhatIsNoObjectIsNamed) {
    const test::TuningFile file(std::string("[]"));
    test::ContextPtr context = test::context_with_tuning(file.path());
    EXPECT_NE(
        std::string(hattn_context_warning(context.get())).find("([] is no object, but must have a member format)"),
        std::string::npos)
        << hattn_context_warning(context.get());
}

TEST(TuningFile, MissingIsNoCauseForAWarning) {
    test::ContextPtr context = test::context_with_tuning("/nowhere/tuning.json");
    EXPECT_STREQ(hattn_context_warning(context.get()), "");
    EXPECT_EQ(test::info_of(context.get()).at("tuning_database").at("state"), "missing");
}

TEST(TuningFile, WhatCannotBeReadIsNotMissing) {
    const test::TuningFile file(std::string("{}"));
    const std::string loop = file.path() + ".loop";
    std::filesystem::remove(loop);
    std::filesystem::create_symlink(loop, loop);
    const std::string folder = std::filesystem::path(file.path()).parent_path();
    for (const std::string &path : {loop, folder}) {
        test::ContextPtr context = test::context_with_tuning(path);
        const std::string warning = hattn_context_warning(context.get());
        EXPECT_EQ(warning.find("tuning database " + path + " cannot be read: "), 0u) << warning;
        EXPECT_EQ(test::info_of(context.get()).at("tuning_database").at("state"), "unreadable");
    }
    std::filesystem::remove(loop);
}

}  // namespace
