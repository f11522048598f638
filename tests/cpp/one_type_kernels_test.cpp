// Kernels for keys and values of one type, by name, on every small case without hooks whose heads they take: those of
// the library that this CPU runs, and the stand-ins of the pack that HATTN_PACKS names. And what the planner gives
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "case_list.h"
#include "support/json_text.h"
#include "support/run.h"
#include "support/targets.h"
#include "support/typed_run.h"
#include "typed_problem.h"

namespace {

using namespace hattn;
using cases::ScaleKind;

// As docs/decisions/0039, 0041, 0073, 0078 and 0095 say, whatever the library has.
constexpr int64_t kWholeHead = 32, kWholeLine = 128;
constexpr std::string_view kLines = "_lines";        // heads of kWholeLine, of int4 of multiples
constexpr std::string_view kMatrices = "_matrices";  // likewise, of int8 and int4

int64_t shortest_head(const std::string &type) {
    return type == "int4" ? 64 : kWholeHead;
}
int64_t longest_head(const std::string &type) {
    return type.starts_with("int") ? 4096 : 8192;
}

// Each type on both sides, beside queries and outputs of several, with every kind of scale.
constexpr cases::StoredTypes kOneType[] = {
    {"float16", HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16},
    {"float16", HATTN_FLOAT32, HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT32},
    {"bfloat16", HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_FLOAT32},
    {"bfloat16", HATTN_FLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16},
    {"int8", HATTN_FLOAT32, HATTN_INT8, HATTN_INT8, HATTN_FLOAT32, ScaleKind::kKey, ScaleKind::kKey},
    {"int8", HATTN_FLOAT16, HATTN_INT8, HATTN_INT8, HATTN_FLOAT16, ScaleKind::kChannel, ScaleKind::kHead},
    {"int4", HATTN_FLOAT32, HATTN_INT4, HATTN_INT4, HATTN_FLOAT32, ScaleKind::kKey, ScaleKind::kKey},
    {"int4", HATTN_BFLOAT16, HATTN_INT4, HATTN_INT4, HATTN_FLOAT32, ScaleKind::kTensor, ScaleKind::kChannel},
};

// And of products of pairs along rows, queries too, see docs/decisions/0088.
constexpr cases::StoredTypes kRowsOfBfloat16[] = {
    {"bfloat16", HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16},
    {"bfloat16", HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_FLOAT32},
};

struct Kernel {
    std::string name;
    std::string type;  // of keys and values
    int64_t whole;     // heads are multiples of it
    int64_t shortest;  // and have no fewer elements
    int64_t longest = 0;
    bool of_pairs = false;  // of queries too

    std::vector<cases::StoredTypes> types() const {
        std::vector<cases::StoredTypes> own;
        using Types = std::span<const cases::StoredTypes>;
        const Types all = of_pairs ? Types(kRowsOfBfloat16) : Types(kOneType);
        std::ranges::copy_if(all, std::back_inserter(own), [&](const auto &types) { return types.name == type; });
        return own;
    }
};

void PrintTo(const Kernel &kernel, std::ostream *stream) {
    *stream << kernel.name;
}

const nlohmann::json &info() {
    static const nlohmann::json all = test::info_of(test::make_context().get());
    return all;
}

bool is_of_byte_matrices(const std::string &storage) {
    return storage.starts_with("int") && storage.ends_with(kMatrices);
}

std::vector<Kernel> kernels() {
    std::vector<Kernel> list;
    for (const nlohmann::json &row : info().at("kernels")) {
        const std::string storage = row.at("storage"), prefix = "all_";
        if (storage.starts_with(prefix) && row.at("runnable")) {
            const std::string type = storage.substr(prefix.size());
            list.push_back({row.at("name"), type, kWholeHead, shortest_head(type), longest_head(type)});
        } else if (storage == "bfloat16_rows" && row.at("runnable")) {
            list.push_back({row.at("name"), "bfloat16", kWholeHead, kWholeHead, longest_head("bfloat16"), true});
        } else if ((storage.ends_with(kLines) || is_of_byte_matrices(storage)) && row.at("runnable")) {
            const std::string type = storage.substr(0, storage.find('_'));
            const int64_t longest = type == "int8" ? kWholeLine : longest_head(type);
            list.push_back({row.at("name"), type, kWholeLine, kWholeLine, longest});
        }
    }
    return list;
}

bool fits(const cases::Case &c, const Kernel &kernel) {
    const auto takes = [&](int64_t dim) {
        return dim % kernel.whole == 0 && dim >= kernel.shortest && dim <= kernel.longest;
    };
    return c.hooks().empty() && takes(c.key_dim) && takes(c.value_dim) && c.work() > 0.0 &&
           c.work() <= cases::kSmallWork;
}

// Of whole lines there are few cases: the others are made longer.
cases::Case lengthened(cases::Case c, const Kernel &kernel) {
    if (kernel.whole == kWholeLine) {
        for (int64_t *dim : {&c.key_dim, &c.value_dim}) {
            *dim = (*dim + kWholeLine - 1) / kWholeLine * kWholeLine;
        }
    }
    return c;
}

hattn_status plan_status(hattn_context *context, const cases::TypedProblem &problem) {
    hattn_plan *plan = nullptr;
    const hattn_status status = hattn_plan_create(context, &problem.desc, &plan);
    hattn_plan_destroy(plan);
    return status;
}

class OneTypeKernel : public testing::TestWithParam<Kernel> {};

TEST_P(OneTypeKernel, MatchesOracle) {
    constexpr int kFewest = 20;
    // One thread: further ones allocate when they start.
    test::ContextPtr context = test::make_context(1, "kernel=" + GetParam().name);
    int runs = 0;
    for (const cases::Case &any : cases::all_cases()) {
        const cases::Case c = lengthened(any, GetParam());
        if (!fits(c, GetParam())) {
            continue;
        }
        for (const cases::StoredTypes &types : GetParam().types()) {
            SCOPED_TRACE(cases::describe(c));
            cases::TypedProblem problem(c, types);
            const auto integers = test::integer_products(GetParam().name, types);
            const hattn_dtype weights = GetParam().of_pairs ? HATTN_BFLOAT16 : HATTN_FLOAT32;
            ASSERT_NO_FATAL_FAILURE(test::expect_oracle(context.get(), problem, weights, integers));
            ++runs;
        }
    }
    EXPECT_GE(runs, kFewest);
}

// Products of the largest integers, all of one sign, are summed up in 32 bits. Sums in float32 are further off than the
// oracle's bound then, of rounding to either side.
TEST_P(OneTypeKernel, SumsUpLongHeads) {
    test::ContextPtr context = test::make_context(1, "kernel=" + GetParam().name);
    for (cases::StoredTypes types : GetParam().types()) {
        const auto integers = test::integer_products(GetParam().name, types);
        if (integers == cases::IntegerProducts::kNone) {
            continue;
        }
        types.k_scales = ScaleKind::kTensor;
        for (const int64_t dim : std::set{std::min(33 * kWholeLine, GetParam().longest), GetParam().longest}) {
            cases::Case c;
            c.name = "long_heads_" + std::to_string(dim);
            c.data = cases::Data::kOneSign;
            c.query_length = 1;
            c.kv_length = 20;
            c.key_dim = dim;
            c.value_dim = kWholeLine;
            SCOPED_TRACE(cases::describe(c));
            cases::TypedProblem problem(c, types);
            ASSERT_NO_FATAL_FAILURE(test::expect_oracle(context.get(), problem, HATTN_FLOAT32, integers));
        }
    }
    cases::Case c;
    c.name = "too_long_heads";
    c.key_dim = c.value_dim = GetParam().longest + kWholeLine;
    EXPECT_EQ(plan_status(context.get(), cases::TypedProblem(c, GetParam().types()[0])), HATTN_INVALID_ARGUMENT);
}

TEST_P(OneTypeKernel, RefusesOtherTypesAndHeads) {
    test::ContextPtr context = test::make_context(1, "kernel=" + GetParam().name);
    cases::Case c;
    c.name = "one_type_kernel_of_others";
    c.key_dim = c.value_dim = GetParam().shortest;
    const cases::TypedProblem mixed(c, {"mixed", HATTN_FLOAT32, HATTN_FLOAT16, HATTN_INT8, HATTN_FLOAT32});
    EXPECT_EQ(plan_status(context.get(), mixed), HATTN_INVALID_ARGUMENT);
    EXPECT_NE(std::string(hattn_last_error(context.get())).find("takes " + GetParam().type), std::string::npos);

    const cases::StoredTypes own = GetParam().types()[0];
    if (GetParam().of_pairs) {
        const cases::TypedProblem queries(c, {"queries", HATTN_FLOAT32, own.k, own.v, own.out});
        EXPECT_EQ(plan_status(context.get(), queries), HATTN_INVALID_ARGUMENT);
        EXPECT_NE(std::string(hattn_last_error(context.get())).find("takes bfloat16 queries, keys and values"),
                  std::string::npos);
    }
    EXPECT_EQ(plan_status(context.get(), cases::TypedProblem(c, own)), HATTN_OK) << hattn_last_error(context.get());
    c.value_dim = GetParam().whole + GetParam().whole / 2;
    EXPECT_EQ(plan_status(context.get(), cases::TypedProblem(c, own)), HATTN_INVALID_ARGUMENT);
    const std::string heads = GetParam().longest > GetParam().whole ? "multiples of " : "heads of ";
    EXPECT_NE(std::string(hattn_last_error(context.get())).find(heads + std::to_string(GetParam().whole)),
              std::string::npos);
    c.value_dim = GetParam().shortest - GetParam().whole;
    if (c.value_dim > 0) {
        EXPECT_EQ(plan_status(context.get(), cases::TypedProblem(c, own)), HATTN_INVALID_ARGUMENT);
    }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OneTypeKernel);
INSTANTIATE_TEST_SUITE_P(Of, OneTypeKernel, testing::ValuesIn(kernels()),
                         [](const testing::TestParamInfo<Kernel> &kernel) {
                             return test::as_test_name(kernel.param.name);
                         });

// Words of queries, four times, take more of a kernel's scratch than short values leave.
TEST(RowsOfBfloat16, HaveRoomForLongKeysBesideShortValues) {
    cases::Case c;
    c.name = "long_keys";
    c.query_heads = 16;
    c.kv_heads = 2;
    c.query_length = 1;
    c.kv_length = 300;
    c.value_dim = kWholeHead;
    int runs = 0;
    for (const Kernel &kernel : kernels()) {
        if (!kernel.of_pairs) {
            continue;
        }
        SCOPED_TRACE(kernel.name);
        test::ContextPtr context = test::make_context(1, "kernel=" + kernel.name);
        c.key_dim = kernel.longest;
        cases::TypedProblem problem(c, kRowsOfBfloat16[0]);
        ASSERT_NO_FATAL_FAILURE(test::expect_oracle(context.get(), problem, HATTN_BFLOAT16));
        ++runs;
    }
    if (runs == 0) {
        GTEST_SKIP() << "no such kernel runs on this machine";
    }
}

// The kernel that decodes one row of so many heads per kv head.
std::string kernel_of(const cases::StoredTypes &types, int64_t dim, bool with_mask, int64_t group = 2,
                      int64_t value_dim = 0, int64_t keys = 600) {
    cases::Case c;
    c.name = "decode_of_one_type";
    c.query_heads = 2 * group;
    c.kv_heads = 2;
    c.query_length = 1;
    c.kv_length = keys;
    c.key_dim = dim;
    c.value_dim = value_dim > 0 ? value_dim : dim;
    if (with_mask) {
        c.mask = cases::varying("bhqk");
    }
    const cases::TypedProblem problem(c, types);
    hattn_attention_desc desc = problem.desc;
    desc.algorithm = HATTN_ALGORITHM_SPLIT_KV;  // on CPUs with AMX flash would have some
    test::ContextPtr context = test::make_context();
    hattn_plan *plan = nullptr;
    EXPECT_EQ(hattn_plan_create(context.get(), &desc, &plan), HATTN_OK) << hattn_last_error(context.get());
    const test::PlanPtr owner(plan);
    return test::explanation_of(plan).at("kernel");
}

// Where flash takes pairs of bfloat16 too: kernels for them may run on CPUs that they are not made for.
bool multiplies_rows_of_bfloat16() {
    cases::Case c;
    c.name = "flash_over_bfloat16";
    const cases::TypedProblem problem(c, kRowsOfBfloat16[0]);
    hattn_attention_desc desc = problem.desc;
    desc.algorithm = HATTN_ALGORITHM_FLASH;
    test::ContextPtr context = test::make_context();
    hattn_plan *plan = nullptr;
    EXPECT_EQ(hattn_plan_create(context.get(), &desc, &plan), HATTN_OK) << hattn_last_error(context.get());
    const test::PlanPtr owner(plan);
    const std::string kernel = test::explanation_of(plan).at("kernel");
    return kernel.starts_with("bfloat16_flash_") &&
           std::ranges::any_of(kernels(), [](const Kernel &other) { return other.of_pairs; });
}

// Those that stand in for kernels of another target are in no plan.
bool may_be_planned(const std::string &kernel) {
    return kernel.find("_on_") == std::string::npos;
}

bool multiplies_matrices_of_bytes() {
    const auto kernels = info().at("kernels");
    return std::ranges::any_of(kernels, [](const nlohmann::json &row) {
        return is_of_byte_matrices(row.at("storage")) && row.at("runnable") && may_be_planned(row.at("name"));
    });
}

// From five rows of a kv head and 256 keys on, by tiles of eight, in heads that are whole lines.
TEST(OneTypePlan, GivesManyRowsToMatricesOfBytes) {
    if (!multiplies_matrices_of_bytes()) {
        GTEST_SKIP() << "this CPU multiplies no matrices of bytes";
    }
    for (const int64_t group : {5, 7, 12, 32}) {
        for (const auto &[of_int8, dim] : {std::pair(true, 128), {false, 128}, {false, 384}}) {
            const std::string own = of_int8 ? "amx_int8_split_kv_" : "amx_int4_split_kv_";
            const cases::StoredTypes &types = kOneType[of_int8 ? 4 : 6];
            EXPECT_TRUE(kernel_of(types, dim, false, group).starts_with(own)) << kernel_of(types, dim, false, group);
            EXPECT_FALSE(kernel_of(types, dim, true, group).starts_with(own)) << kernel_of(types, dim, true, group);
        }
        for (const std::string &other :
             {kernel_of(kOneType[4], 256, false, group), kernel_of(kOneType[6], 64, false, group),
              kernel_of(kOneType[4], 128, false, group, 96), kernel_of(kOneType[4], 128, false, group, 0, 255)}) {
            EXPECT_FALSE(other.starts_with("amx_")) << other;
        }
        const std::string longer = kernel_of(kOneType[4], 128, false, group, 0, 256);
        EXPECT_TRUE(longer.starts_with("amx_")) << longer;
    }
}

TEST(OneTypePlan, GivesThemPlainProblemsAlone) {
    const auto is_planned = [](const Kernel &kernel) { return may_be_planned(kernel.name); };
    if (std::ranges::none_of(kernels(), is_planned)) {
        GTEST_SKIP() << "no kernel for one type runs on this machine";
    }
    for (const cases::StoredTypes &types : kOneType) {
        const std::string own = std::string(types.name) + "_split_kv_";
        EXPECT_TRUE(kernel_of(types, 64, false).starts_with(own)) << kernel_of(types, 64, false);
        EXPECT_EQ(kernel_of(types, 32, false).starts_with(own), shortest_head(types.name) == 32)
            << kernel_of(types, 32, false);
        EXPECT_TRUE(kernel_of(types, 80, false).starts_with("stored_split_kv_")) << kernel_of(types, 80, false);
        EXPECT_TRUE(kernel_of(types, 64, true).starts_with("stored_split_kv_")) << kernel_of(types, 64, true);
    }
    const bool has_lines = std::ranges::any_of(
        kernels(), [&](const Kernel &kernel) { return kernel.whole == kWholeLine && is_planned(kernel); });
    const auto expected = [&](const std::string &type, bool by_lines) {
        return type + (has_lines && by_lines ? "_lines_split_kv_" : "_split_kv_");
    };
    for (const int64_t dim : {kWholeLine, 2 * kWholeLine, kWholeLine + kWholeHead}) {
        const std::string int8 = kernel_of(kOneType[4], dim, false), int4 = kernel_of(kOneType[6], dim, false);
        EXPECT_TRUE(int8.starts_with(expected("int8", dim == kWholeLine))) << int8;
        EXPECT_TRUE(int4.starts_with(expected("int4", dim % kWholeLine == 0))) << int4;
    }
    for (const int64_t group : {1, 4, 8}) {
        const bool in_matrices = group > 4 && multiplies_matrices_of_bytes();
        const std::string int8 = kernel_of(kOneType[4], kWholeLine, false, group),
                          int4 = kernel_of(kOneType[6], kWholeLine, false, group);
        EXPECT_TRUE(int8.starts_with(in_matrices ? "amx_int8_split_kv_" : expected("int8", true))) << int8;
        EXPECT_TRUE(int4.starts_with(in_matrices ? "amx_int4_split_kv_" : expected("int4", true))) << int4;
    }
    const std::string wide_int8 = kernel_of(kOneType[4], kWholeLine, false, 2, 2 * kWholeLine),
                      wide_int4 = kernel_of(kOneType[6], kWholeLine, false, 2, 2 * kWholeLine);
    EXPECT_TRUE(wide_int8.starts_with(expected("int8", false))) << wide_int8;
    EXPECT_TRUE(wide_int4.starts_with(expected("int4", true))) << wide_int4;
    for (const int64_t group : {4, 8, 12, 32}) {
        const std::string pairs = multiplies_rows_of_bfloat16() ? "bfloat16_pairs_split_kv_" : "stored_split_kv_";
        const std::string own = group > 8 ? pairs : "stored_split_kv_";
        for (const bool with_mask : {false, true}) {
            const std::string uneven = kernel_of(kRowsOfBfloat16[0], 80, with_mask, group);
            EXPECT_TRUE(uneven.starts_with(own)) << uneven;
        }
        const std::string masked = kernel_of(kRowsOfBfloat16[0], kWholeHead, true, group);
        EXPECT_TRUE(masked.starts_with(own)) << masked;
    }
    for (const int64_t group : {2, 4, 8}) {
        const bool in_pairs = group > 2 && multiplies_rows_of_bfloat16();
        const std::string of_all = kernel_of(kRowsOfBfloat16[0], kWholeHead, false, group),
                          of_keys = kernel_of({"keys", HATTN_FLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_FLOAT16},
                                              kWholeHead, false, group);
        EXPECT_TRUE(of_all.starts_with(in_pairs ? "bfloat16_rows_split_kv_" : "bfloat16_split_kv_")) << of_all;
        EXPECT_TRUE(of_keys.starts_with("bfloat16_split_kv_")) << of_keys;
    }
    const cases::StoredTypes mixed = {"mixed", HATTN_FLOAT32, HATTN_FLOAT16, HATTN_INT8, HATTN_FLOAT32};
    EXPECT_TRUE(kernel_of(mixed, 64, false).starts_with("stored_split_kv_")) << kernel_of(mixed, 64, false);
}

}  // namespace
