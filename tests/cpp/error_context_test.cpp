// Everything that can be wrong about a context, a handle or a query of text.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "support/refusal.h"

namespace {

using namespace hattn::test;

// A pointer that must still be there after a failed call.
template<typename T>
T *sentinel() {
    return reinterpret_cast<T *>(uintptr_t{0x5a5a5a40});
}

std::string refused(const std::string &force, const hattn_context_desc *desc, const Refusal &refusal) {
    ScopedForce scope(force);
    auto *context = sentinel<hattn_context>();
    hattn_status status = hattn_context_create(desc, &context);
    if (status == HATTN_OK) {
        hattn_context_destroy(context);
        return "the context was made";
    }
    std::string text = context == sentinel<hattn_context>() ? "" : "*context was written; ";
    return text + mismatch(outcome_of(status), refusal);
}

void *allocate(void *, size_t, size_t) {
    return nullptr;
}
void deallocate(void *, void *) {}

TEST(ContextErrors, NullContextPointer) {
    EXPECT_EQ(mismatch(outcome_of(hattn_context_create(nullptr, nullptr)), {HATTN_INVALID_ARGUMENT, {"context"}}), "");
}

TEST(ContextErrors, Desc) {
    hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
    desc.threads = -1;
    EXPECT_EQ(refused("", &desc, {HATTN_INVALID_ARGUMENT, {"threads", "-1"}}), "");
    desc = HATTN_CONTEXT_DESC_INIT;
    desc.struct_size = sizeof(desc) + 8;
    EXPECT_EQ(refused("", &desc,
                      {HATTN_INVALID_ARGUMENT,
                       {"struct_size", std::to_string(sizeof(desc) + 8), std::to_string(sizeof(desc))}}),
              "");
    // This is the first version: nothing older can have been smaller.
    for (size_t size : {size_t{0}, sizeof(desc) - 8}) {
        desc.struct_size = size;
        EXPECT_EQ(refused("", &desc, {HATTN_INVALID_ARGUMENT, {"struct_size", std::to_string(size)}}), "");
    }
    desc = HATTN_CONTEXT_DESC_INIT;
    desc.allocate = allocate;
    EXPECT_EQ(refused("", &desc, {HATTN_INVALID_ARGUMENT, {"allocate", "deallocate"}}), "");
    desc = HATTN_CONTEXT_DESC_INIT;
    desc.deallocate = deallocate;
    EXPECT_EQ(refused("", &desc, {HATTN_INVALID_ARGUMENT, {"allocate", "deallocate"}}), "");
}

TEST(ContextErrors, UnknownWordsInForce) {
    for (const char *force : {"bogus", "algorithm=bogus", "target=bogus", "kernel=bogus", "bogus=flash",
                              "algorithm=flash,target=bogus", "algorithm=flash,bogus"}) {
        EXPECT_EQ(refused(force, nullptr, {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE", "bogus"}}), "") << force;
    }
    EXPECT_EQ(refused("algorithm=flash,algorithm=naive", nullptr, {HATTN_INVALID_ARGUMENT, {"algorithm", "twice"}}),
              "");
    for (const char *force : {"algorithm", "algorithm=", "=flash", ",", "kernel=", "target=", "algorithm=FLASH", " "}) {
        EXPECT_EQ(refused(force, nullptr, {HATTN_INVALID_ARGUMENT, {"HATTN_FORCE"}}), "") << force;
    }
}

TEST(ContextErrors, ForceIsReadAtCreationOnly) {
    NewContext created = new_context();
    ASSERT_TRUE(created.outcome.ok()) << created.outcome.text();
    ScopedForce scope("algorithm=bogus");
    size_t size = 0;
    EXPECT_EQ(hattn_info(created.context.get(), nullptr, 0, &size), HATTN_CAPACITY_EXCEEDED);
}

TEST(ContextErrors, KnownWordsInForce) {
    for (const char *force : {"algorithm=auto", "algorithm=naive", "algorithm=flash", "algorithm=split_kv",
                              "target=generic", "algorithm=flash,target=generic", "target=generic,algorithm=naive"}) {
        EXPECT_EQ(new_context(force).outcome.text(), "HATTN_OK: ") << force;
    }
}

TEST(LastError, EmptyUntilSomethingFailsAndKeptUntilTheNextCall) {
    NewContext created = new_context();
    ASSERT_TRUE(created.outcome.ok());
    EXPECT_NE(hattn_plan_create(created.context.get(), nullptr, nullptr), HATTN_OK);
    EXPECT_STRNE(hattn_last_error(created.context.get()), "");
    EXPECT_STREQ(hattn_last_error(created.context.get()), hattn_last_error(nullptr));
}

TEST(StatusName, KnowsEveryStatus) {
    const std::pair<hattn_status, const char *> kNames[] = {{HATTN_OK, "HATTN_OK"},
                                                            {HATTN_INVALID_ARGUMENT, "HATTN_INVALID_ARGUMENT"},
                                                            {HATTN_NOT_SUPPORTED, "HATTN_NOT_SUPPORTED"},
                                                            {HATTN_OUT_OF_MEMORY, "HATTN_OUT_OF_MEMORY"},
                                                            {HATTN_WORKSPACE_TOO_SMALL, "HATTN_WORKSPACE_TOO_SMALL"},
                                                            {HATTN_CAPACITY_EXCEEDED, "HATTN_CAPACITY_EXCEEDED"},
                                                            {HATTN_OVERFLOW, "HATTN_OVERFLOW"},
                                                            {HATTN_INTERNAL_ERROR, "HATTN_INTERNAL_ERROR"}};
    for (auto [status, name] : kNames) {
        EXPECT_STREQ(hattn_status_name(status), name);
    }
    EXPECT_STREQ(hattn_status_name(unknown<hattn_status>(99)), "unknown");
    EXPECT_STREQ(hattn_status_name(unknown<hattn_status>(-1)), "unknown");
}

// hattn_info, hattn_plan_explain and hattn_plan_explain_sequence share their rules.
enum class Query { kInfo, kExplain, kExplainSequence };

class TextQuery : public testing::TestWithParam<Query> {
protected:
    void SetUp() override {
        context_ = make_context();
        hattn_attention_desc desc;
        hattn_attention_desc_init(&desc);
        desc.batch = desc.query_heads = desc.kv_heads = 1;
        desc.query_length = desc.kv_length = desc.key_dim = desc.value_dim = 4;
        plan_ = make_plan(context_.get(), desc);
    }

    static hattn_status query(hattn_context *context, const hattn_plan *plan, char *buffer, size_t capacity,
                              size_t *size) {
        switch (GetParam()) {
        case Query::kInfo:
            return hattn_info(context, buffer, capacity, size);
        case Query::kExplain:
            return hattn_plan_explain(plan, buffer, capacity, size);
        case Query::kExplainSequence:
            break;
        }
        return hattn_plan_explain_sequence(plan, 2, 3, buffer, capacity, size);
    }

    Outcome ask(char *buffer, size_t capacity, size_t *size) {
        return outcome_of(query(context_.get(), plan_.get(), buffer, capacity, size), context_.get());
    }

    ContextPtr context_;
    PlanPtr plan_;
};

TEST_P(TextQuery, SizeThenText) {
    size_t size = 0;
    EXPECT_EQ(ask(nullptr, 0, &size).status, HATTN_CAPACITY_EXCEEDED);
    ASSERT_GT(size, 2u);
    std::vector<char> buffer(size + 1, '#');
    size_t again = 0;
    ASSERT_TRUE(ask(buffer.data(), size, &again).ok());
    EXPECT_EQ(again, size);
    EXPECT_EQ(std::strlen(buffer.data()) + 1, size);
    EXPECT_EQ(buffer[size], '#');
    EXPECT_EQ(buffer[0], '{');
}

TEST_P(TextQuery, OneByteShort) {
    size_t size = 0;
    ask(nullptr, 0, &size);
    std::vector<char> buffer(size, '#');
    size_t again = 0;
    Outcome outcome = ask(buffer.data(), size - 1, &again);
    EXPECT_EQ(
        mismatch(outcome, {HATTN_CAPACITY_EXCEEDED, {"capacity", std::to_string(size - 1), std::to_string(size)}}), "");
    EXPECT_EQ(again, size);
    EXPECT_EQ(std::string(buffer.begin(), buffer.end()), std::string(size, '#'));
}

TEST_P(TextQuery, NullPointers) {
    char buffer[8] = "";
    size_t size = 0;
    EXPECT_EQ(mismatch(ask(nullptr, 16, &size), {HATTN_INVALID_ARGUMENT, {"buffer"}}), "");
    EXPECT_EQ(mismatch(ask(buffer, sizeof(buffer), nullptr), {HATTN_INVALID_ARGUMENT, {"size"}}), "");
    const char *handle = GetParam() == Query::kInfo ? "context" : "plan";
    hattn_status status = query(nullptr, nullptr, buffer, sizeof(buffer), &size);
    EXPECT_EQ(mismatch(outcome_of(status), {HATTN_INVALID_ARGUMENT, {handle}}), "");
}

std::string name_of(const testing::TestParamInfo<Query> &query) {
    constexpr const char *kNames[] = {"info", "explain", "explain_sequence"};
    return kNames[static_cast<size_t>(query.param)];
}

INSTANTIATE_TEST_SUITE_P(Of, TextQuery, testing::Values(Query::kInfo, Query::kExplain, Query::kExplainSequence),
                         name_of);

TEST(ExplainSequence, RefusesWhatThePlanHasNoRoomFor) {
    const ContextPtr context = make_context();
    hattn_attention_desc desc;
    hattn_attention_desc_init(&desc);
    desc.batch = desc.query_heads = desc.kv_heads = 1;
    desc.query_length = 7;
    desc.kv_length = 9;
    desc.key_dim = desc.value_dim = 4;
    const PlanPtr plan = make_plan(context.get(), desc);
    const auto refused = [&](int64_t rows, int64_t keys, const Refusal &refusal) {
        size_t size = 4711;
        const hattn_status status = hattn_plan_explain_sequence(plan.get(), rows, keys, nullptr, 0, &size);
        return mismatch(outcome_of(status, context.get()), refusal) + (size == 4711 ? "" : "size was written");
    };
    EXPECT_EQ(refused(8, 9, {HATTN_INVALID_ARGUMENT, {"query_length", "8", "7"}}), "");
    EXPECT_EQ(refused(-1, 9, {HATTN_INVALID_ARGUMENT, {"query_length", "-1", "7"}}), "");
    EXPECT_EQ(refused(7, 10, {HATTN_INVALID_ARGUMENT, {"kv_length", "10", "9"}}), "");
    EXPECT_EQ(refused(7, -2, {HATTN_INVALID_ARGUMENT, {"kv_length", "-2", "9"}}), "");
}

// Sequences outgrow a ring.
TEST(ExplainSequence, TakesAsManyKeysOfARingAsAnExecute) {
    const ContextPtr context = make_context();
    hattn_attention_desc desc;
    hattn_attention_desc_init(&desc);
    desc.batch = desc.query_heads = desc.kv_heads = desc.query_length = 1;
    desc.kv_length = 64;
    desc.key_dim = desc.value_dim = 4;
    desc.ring = desc.causal = 1;
    desc.window_left = 31;
    const PlanPtr plan = make_plan(context.get(), desc);
    const auto explained = [&](int64_t keys) {
        size_t size = 0;
        return outcome_of(hattn_plan_explain_sequence(plan.get(), 1, keys, nullptr, 0, &size), context.get());
    };
    EXPECT_EQ(explained(100000).status, HATTN_CAPACITY_EXCEEDED);  // of the buffer
    EXPECT_EQ(mismatch(explained((1 << 29) + 1), {HATTN_INVALID_ARGUMENT, {"kv_length", "536870913", "536870912"}}),
              "");
}

TEST(NullHandles, AreHarmless) {
    hattn_context_destroy(nullptr);
    hattn_plan_destroy(nullptr);
    hattn_kv_cache_destroy(nullptr);
    hattn_attention_desc_init(nullptr);
    hattn_attention_args_init(nullptr);
    hattn_kv_cache_desc_init(nullptr);
    EXPECT_NE(hattn_last_error(nullptr), nullptr);
}

TEST(Defaults, OfTheDescriptors) {
    hattn_attention_desc desc;
    std::memset(&desc, 0x77, sizeof(desc));
    hattn_attention_desc_init(&desc);
    EXPECT_EQ(desc.struct_size, sizeof(desc));
    EXPECT_EQ(desc.dtype, HATTN_FLOAT32);
    EXPECT_EQ(desc.device, HATTN_CPU);
    EXPECT_NE(desc.scale, desc.scale);
    EXPECT_EQ(desc.window_left, -1);
    EXPECT_EQ(desc.window_right, -1);
    EXPECT_EQ(desc.softcap, 0.0f);
    EXPECT_EQ(desc.causal + desc.has_bias + desc.has_mask + desc.has_alibi + desc.has_sinks + desc.threads, 0);
    EXPECT_EQ(desc.scores, HATTN_SCORES_NONE);
    EXPECT_EQ(desc.algorithm, HATTN_ALGORITHM_AUTO);
    hattn_attention_args args;
    std::memset(&args, 0x77, sizeof(args));
    hattn_attention_args_init(&args);
    EXPECT_EQ(args.struct_size, sizeof(args));
    for (const hattn_tensor *tensor :
         {&args.q, &args.k, &args.v, &args.out, &args.lse, &args.scores, &args.bias, &args.mask}) {
        EXPECT_EQ(tensor->struct_size, sizeof(hattn_tensor));
        EXPECT_EQ(tensor->data, nullptr);
    }
    EXPECT_EQ(args.workspace, nullptr);
    EXPECT_EQ(args.workspace_size, 0u);
    hattn_kv_cache_desc cache;
    std::memset(&cache, 0x77, sizeof(cache));
    hattn_kv_cache_desc_init(&cache);
    EXPECT_EQ(cache.struct_size, sizeof(cache));
    EXPECT_EQ(cache.dtype, HATTN_FLOAT32);
    EXPECT_EQ(cache.page_size, 0);
    EXPECT_EQ(cache.value_dim, 0);
}

TEST(Version, IsTheHeaders) {
    std::string expected = std::to_string(HATTN_VERSION_MAJOR) + "." + std::to_string(HATTN_VERSION_MINOR) + "." +
                           std::to_string(HATTN_VERSION_PATCH);
    EXPECT_EQ(hattn_version(), expected);
}

}  // namespace
