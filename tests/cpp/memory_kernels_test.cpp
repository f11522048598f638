// Kernels for keys and values in memory: when plans take them, and that their results are those of the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cpu_features.h"
#include "runtime/kernel_registry.h"
#include "runtime/machine_stamp.h"
#include "runtime/memory_kernels.h"
#include "support/json_text.h"
#include "support/run.h"
#include "support/some_desc.h"
#include "support/targets.h"
#include "support/typed_run.h"

namespace {

using namespace hattn;

const std::regex kPrefix("^(memory|ahead)_");  // of names

// Of the kernel in whose place one is.
std::string without_prefix(const std::string &kernel) {
    return std::regex_replace(kernel, kPrefix, "");
}

std::vector<nlohmann::json> memory_kernels() {
    std::vector<nlohmann::json> found;
    const nlohmann::json info = test::info_of(test::make_context().get());
    for (const nlohmann::json &row : info.at("kernels")) {
        if (row.at("from_memory") && row.at("runnable")) {
            found.push_back(row);
        }
    }
    return found;
}

struct Plan {
    std::string kernel;
    nlohmann::json tile;

    bool is_for_memory() const {
        return std::regex_search(kernel, kPrefix);
    }
};

Plan planned(const test::ContextPtr &context, const hattn_attention_desc &desc) {
    const nlohmann::json plan = test::explanation_of(test::make_plan(context.get(), desc).get());
    return {plan.at("kernel"), plan.at("tile")};
}

// A row of 16 heads over so many keys in 8 kv heads of 128 elements: 8 KiB for each key.
hattn_attention_desc decode(int64_t keys) {
    hattn_attention_desc desc = test::some_desc(1, keys);
    desc.batch = 1;
    desc.query_heads = 16;
    desc.kv_heads = 8;
    desc.key_dim = desc.value_dim = 128;
    return desc;
}

// Of these, those that caches are taken to hold: docs/decisions/0099.
int64_t cached_keys() {
    constexpr int64_t kKeyBytes = 8 << 10, kLeast = int64_t{20} << 20;
    return std::max(kLeast, machine_stamp().l3_bytes / 2) / kKeyBytes;
}

class MemoryKernels : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        const test::TargetContext &opened = test::context_for(GetParam());
        if (!opened.context) {
            GTEST_SKIP() << GetParam() << " does not run on this machine";
        }
        const bool has_kernels = GetParam() == "x86-avx512";
        few_rows_made_for_this_ = has_kernels && cpu_has_features("amdfam19h|intel");
        more_made_for_this_ = has_kernels && cpu_has_features("amdfam19h|intel|amdfam1ah");
    }

    bool is_for_memory(const hattn_attention_desc &desc) const {
        return planned(test::make_context(2, "target=" + GetParam()), desc).is_for_memory();
    }

    bool few_rows_made_for_this_ = false, more_made_for_this_ = false;
};

TEST_P(MemoryKernels, AreTakenForMoreBytesThanCachesHold) {
    const int64_t held = cached_keys();
    EXPECT_EQ(is_for_memory(decode(held + 1)), few_rows_made_for_this_);
    EXPECT_FALSE(is_for_memory(decode(held)));
    hattn_attention_desc halves = decode(2 * held + 1);
    halves.k_dtype = halves.v_dtype = HATTN_FLOAT16;
    EXPECT_EQ(is_for_memory(halves), few_rows_made_for_this_);
    halves = decode(2 * held);
    halves.k_dtype = halves.v_dtype = HATTN_FLOAT16;
    EXPECT_FALSE(is_for_memory(halves));
    hattn_attention_desc batch = decode(held / 64 + 1);
    batch.batch = 64;
    EXPECT_EQ(is_for_memory(batch), few_rows_made_for_this_);
    hattn_attention_desc more = decode(held + 1);
    more.query_heads *= 2;
    EXPECT_EQ(is_for_memory(more), more_made_for_this_);
    more.has_mask = 1;
    EXPECT_EQ(is_for_memory(more), more_made_for_this_ && cpu_has_features("amdfam1ah"));
    hattn_attention_desc window = decode(8 * held);
    window.causal = 1;
    window.window_left = 1000;
    EXPECT_FALSE(is_for_memory(window));
}

TEST_P(MemoryKernels, HaveTheTileOfTheOneInWhosePlaceTheyAre) {
    test::ContextPtr context = test::make_context(2, "target=" + GetParam());
    constexpr std::pair<hattn_dtype, int64_t> kGroups[] = {{HATTN_FLOAT32, 1}, {HATTN_FLOAT32, 2},  {HATTN_FLOAT32, 4},
                                                           {HATTN_FLOAT32, 8}, {HATTN_FLOAT32, 16}, {HATTN_BFLOAT16, 4},
                                                           {HATTN_BFLOAT16, 8}};
    for (const auto &[dtype, group] : kGroups) {
        hattn_attention_desc few = decode(1000), many = decode(4 * cached_keys());
        few.query_heads = many.query_heads = 8 * group;
        few.dtype = many.dtype = dtype;
        const Plan cached = planned(context, few), from_memory = planned(context, many);
        EXPECT_FALSE(cached.is_for_memory());
        EXPECT_EQ(without_prefix(from_memory.kernel), cached.kernel);
        EXPECT_EQ(from_memory.tile, cached.tile);
    }
}

// Of more than a second-level cache holds, with the tile of the one in whose place they are.
TEST_P(MemoryKernels, AreThereForKeysThatLieApart) {
    const TargetInfo &target = *find_target(GetParam().c_str());
    const bool is_measured = few_rows_made_for_this_ && cpu_has_features("intel");
    const auto problem_of = [](int64_t keys) {
        hattn::Problem problem{};
        problem.batch = 1;
        problem.query_heads = problem.kv_heads = 8;
        problem.kv_length = keys;
        problem.key_dim = problem.value_dim = 128;
        problem.k_dtype = problem.v_dtype = HATTN_FLOAT32;
        return problem;
    };
    EXPECT_EQ(are_worth_asking_for(problem_of(1000), 1000), cpu_has_features("intel"));
    EXPECT_FALSE(are_worth_asking_for(problem_of(1000), 200));
    EXPECT_TRUE(find_memory_kernels(target, problem_of(200)).empty());
    const std::vector<const KernelInfo *> kernels = find_memory_kernels(target, problem_of(1000));
    EXPECT_EQ(!kernels.empty(), is_measured);
    for (const int rows : {1, 2, 4, 8, 16}) {
        const auto has_rows = [rows](const KernelInfo *kernel) {
            return kernel->storage == KeyStorage::kFloat32 && kernel->tile.rows == rows;
        };
        EXPECT_EQ(std::ranges::any_of(kernels, has_rows), is_measured) << rows << " rows";
    }
}

TEST(MemoryKernel, KeysLieApartWhereTokensHaveSeveralHeads) {
    hattn::Problem problem{};
    problem.key_dim = problem.value_dim = 64;
    hattn_attention_args args{};
    const auto lie = [&](int64_t key_stride, int64_t value_stride, int64_t page_size = 0) {
        args.k.stride[2] = key_stride;
        args.v.stride[2] = value_stride;
        problem.page_size = page_size;
        return lie_apart(problem, args);
    };
    EXPECT_TRUE(lie(128, 128));
    EXPECT_TRUE(lie(-512, 512));
    EXPECT_FALSE(lie(64, 64));
    EXPECT_FALSE(lie(80, 80));
    EXPECT_FALSE(lie(128, 64));
    EXPECT_FALSE(lie(128, 128, 16));  // of a page
}

TEST_P(MemoryKernels, AreNotTakenWhereAnotherIsForced) {
    test::ContextPtr context = test::make_context(2, "target=" + GetParam());
    const std::string usual = planned(context, decode(1000)).kernel;
    test::ContextPtr forced = test::make_context(2, "kernel=" + usual);
    EXPECT_EQ(planned(forced, decode(2 * cached_keys())).kernel, usual);
}

INSTANTIATE_TEST_SUITE_P(Of, MemoryKernels, testing::ValuesIn(test::target_names()),
                         [](const auto &target) { return test::as_test_name(target.param); });

// In a process that has not asked what machine it runs on.
TEST(MemoryKernelDeathTest, FirstExecuteOfARingAllocatesNothing) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto executed = [] {
        constexpr int64_t kBatch = 8, kHeads = 32, kKeys = 4096, kDim = 128;  // a GiB, were they not all the same
        cases::Case c;
        c.name = "ring";
        c.query_heads = c.kv_heads = 1;
        c.query_length = 1;
        c.kv_length = kKeys;
        c.key_dim = c.value_dim = kDim;
        c.window_left = kKeys - 1;
        c.window_right = 0;
        c.lse = false;
        cases::Problem problem(c);
        problem.desc.ring = 1;
        const std::vector<int32_t> lengths(kBatch, kKeys);
        problem.args.kv_lengths = lengths.data();
        cases::TensorData queries = cases::make_tensor(HATTN_FLOAT32, {kBatch, kHeads, 1, kDim});
        cases::TensorData outputs = cases::make_tensor(HATTN_FLOAT32, {kBatch, kHeads, 1, kDim});
        problem.args.q = queries.view;
        problem.args.out = outputs.view;
        problem.desc.batch = kBatch;
        problem.desc.query_heads = problem.desc.kv_heads = kHeads;
        for (hattn_tensor *side : {&problem.args.k, &problem.args.v}) {
            side->extent[0] = kBatch;
            side->extent[1] = kHeads;
            side->stride[0] = side->stride[1] = 0;
        }
        test::ContextPtr context = test::make_context(1);
        const test::Outcome outcome = test::execute(test::make_plan(context.get(), problem.desc).get(), problem.args);
        std::cerr << outcome.text() << ", allocations: " << outcome.allocations << "\n";
        std::exit(outcome.ok() && outcome.allocations == 0 ? 0 : 1);
    };
    EXPECT_EXIT(executed(), testing::ExitedWithCode(0), "allocations: 0");
}

// Several chunks and splits, of heads that are whole lines, in groups that fill no tile.
TEST(MemoryKernel, HasTheBitsOfTheOneInWhosePlaceItIs) {
    constexpr cases::StoredTypes kTypes[] = {
        {"float32", HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32},
        {"all_float16", HATTN_FLOAT32, HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT32},
        {"all_bfloat16", HATTN_FLOAT32, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_FLOAT32},
        {"bfloat16_rows", HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_FLOAT32},
        {"int8_lines", HATTN_FLOAT32, HATTN_INT8, HATTN_INT8, HATTN_FLOAT32, cases::ScaleKind::kKey,
         cases::ScaleKind::kKey},
    };
    cases::Case c;
    c.name = "from_memory";
    c.batch = 2;
    c.query_heads = 6;
    c.kv_heads = 2;
    c.query_length = 5;
    c.kv_length = 1300;
    c.kv_lengths = {1300, 517};
    c.causal = true;
    c.key_dim = c.value_dim = 128;
    const std::vector<nlohmann::json> kernels = memory_kernels();
    if (kernels.empty()) {
        ASSERT_FALSE(test::context_for(test::target_names().back()).context &&
                     test::target_names().back() == "x86-avx512");
        GTEST_SKIP() << "no target that runs on this machine has such kernels";
    }
    for (const nlohmann::json &row : kernels) {
        const std::string name = row.at("name"), storage = row.at("storage");
        ASSERT_TRUE(std::regex_search(name, kPrefix));
        const auto types = std::ranges::find(kTypes, storage, &cases::StoredTypes::name);
        ASSERT_NE(types, std::end(kTypes)) << name << " reads " << storage;
        const auto values = [&](const std::string &forced) {
            SCOPED_TRACE(forced);
            test::ContextPtr context = test::make_context(1, "kernel=" + forced);
            cases::TypedProblem problem(c, *types);
            const hattn_dtype weights = storage == "bfloat16_rows" ? HATTN_BFLOAT16 : HATTN_FLOAT32;
            test::expect_oracle(context.get(), problem, weights, test::integer_products(forced, *types));
            return test::output_values(problem.twin);
        };
        EXPECT_TRUE(test::same_bits(values(name), values(without_prefix(name)))) << name;
    }
}

}  // namespace
