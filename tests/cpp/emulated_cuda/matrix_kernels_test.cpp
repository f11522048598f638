// Flash attention and split-KV on tensor cores on the emulator, through the library as a caller uses it, against the
// oracle: products of 16-bit numbers are exact, sums are float32, and weights are rounded after their sum is taken.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "matrix_case.h"
#include "support/devices.h"
#include "support/json_text.h"
#include "support/typed_run.h"

namespace {

using namespace hattn;

constexpr cases::StoredTypes kTypes[] = {
    {"float16", HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16},
    {"float16_to_float32", HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT32},
    {"bfloat16", HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16},
    {"bfloat16_to_float32", HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_FLOAT32},
};

// Each hook alone and some together, over heads of every size.
void add_hooks(std::vector<cases::Case> *list) {
    const auto add = [&](const char *name, int64_t dim, auto change) {
        list->push_back(test::matrix_case(name));
        list->back().key_dim = list->back().value_dim = dim;
        change(list->back());
    };
    add("softcap", 64, [](cases::Case &c) { c.softcap = 1.5f; });
    add("softcap_large_heads", 256, [](cases::Case &c) {
        c.softcap = 2.0f;
        c.causal = true;
    });
    add("bias", 128, [](cases::Case &c) { c.bias = cases::varying("hqk"); });
    add("bias_hides_keys", 64, [](cases::Case &c) {
        c.bias = cases::varying("bqk");
        c.bias_values = cases::BiasValues::kSomeNegativeInf;
        c.data = cases::Data::kPoisonHidden;
    });
    add("bias_hides_rows", 160, [](cases::Case &c) {
        c.bias = cases::varying("q");
        c.bias_values = cases::BiasValues::kNegativeInfRows;
    });
    add("alibi", 96, [](cases::Case &c) {
        c.alibi = true;
        c.causal = true;
    });
    for (int64_t dim : {48, 128, 256}) {
        add(("mask_hides_keys_" + std::to_string(dim)).c_str(), dim, [](cases::Case &c) {
            c.mask = cases::varying("k");
            c.mask_values = cases::MaskValues::kHiddenKeys;
            c.data = cases::Data::kPoisonHidden;
        });
    }
    // Rows that are not aligned.
    add("mask_hides_keys_with_gaps", 128, [](cases::Case &c) {
        c.mask = cases::varying("hk");
        c.mask_values = cases::MaskValues::kHiddenKeys;
        c.data = cases::Data::kPoisonHidden;
        c.layout = cases::Layout::kPadded;
    });
    add("mask_of_rows_without_keys", 64, [](cases::Case &c) {
        c.mask = cases::varying("qk");
        c.mask_values = cases::MaskValues::kEmptyRows;
        c.sinks = cases::Sinks::kMixed;
    });
    add("mask_and_window", 192, [](cases::Case &c) {
        c.batch = 2;
        c.mask = cases::varying("bhqk");
        c.window_left = 60;
        c.kv_lengths = {150, 77};
    });
    add("all_hooks", 128, [](cases::Case &c) {
        c.softcap = 3.0f;
        c.bias = cases::varying("hqk");
        c.alibi = true;
        c.mask = cases::varying("qk");
        c.causal = true;
        c.sinks = cases::Sinks::kNormal;
    });
}

std::vector<cases::Case> all_cases() {
    std::vector<cases::Case> list;
    const auto add = [&](const char *name, auto change) {
        list.push_back(test::matrix_case(name));
        change(list.back());
    };
    add("plain", [](cases::Case &) {});
    for (int64_t dim : {8, 29, 32, 40, 96, 100, 128, 136, 160, 192, 250, 256}) {
        add(("dim_" + std::to_string(dim)).c_str(), [&](cases::Case &c) {
            c.key_dim = dim;
            c.value_dim = dim == 29 ? 31 : dim == 40 ? 17 : dim;
        });
    }
    // Tiles with fewer rows.
    add("short", [](cases::Case &c) {
        c.query_length = 41;
        c.causal = true;
    });
    add("causal", [](cases::Case &c) { c.causal = true; });
    // Tiles of flash in splits.
    add("few_tiles", [](cases::Case &c) {
        c.query_length = 41;
        c.kv_length = 1100;
        c.causal = true;
        c.sinks = cases::Sinks::kNormal;
    });
    add("ragged", [](cases::Case &c) {
        c.batch = 4;
        c.causal = true;
        c.q_lengths = {70, 33, 1, 12};
        c.kv_lengths = {150, 41, 64, 0};
        c.sinks = cases::Sinks::kMixed;
    });
    add("offsets", [](cases::Case &c) {
        c.batch = 3;
        c.causal = true;
        c.causal_offsets = {17, 0, 100};
        c.data = cases::Data::kPoisonHidden;
    });
    // Causal with fewer keys than rows: the first rows see none.
    add("rows_without_keys", [](cases::Case &c) {
        c.causal = true;
        c.kv_length = 20;
    });
    add("window", [](cases::Case &c) {
        c.window_left = 21;
        c.window_right = 3;
        c.data = cases::Data::kPoisonHidden;
    });
    add("rising", [](cases::Case &c) { c.data = cases::Data::kRisingLogits; });
    add("extreme", [](cases::Case &c) { c.data = cases::Data::kExtremeLogits; });
    add("exact_means", [](cases::Case &c) { c.data = cases::Data::kZeroQueries; });
    add("bshd", [](cases::Case &c) { c.layout = cases::Layout::kBshd; });
    add("gaps", [](cases::Case &c) { c.layout = cases::Layout::kPadded; });
    add("wide_windows", [](cases::Case &c) {
        c.key_dim = c.value_dim = 200;
        c.window_left = 40;
        c.sinks = cases::Sinks::kNormal;
    });
    add_hooks(&list);
    return list;
}

// Few rows over several splits of keys.
std::vector<cases::Case> decode_cases() {
    std::vector<cases::Case> list;
    const auto add = [&](const char *name, int64_t heads, int64_t rows, int64_t dim, auto change) {
        list.push_back(test::matrix_case(name));
        list.back().query_heads = heads;
        list.back().query_length = rows;
        list.back().key_dim = list.back().value_dim = dim;
        list.back().kv_length = 700;
        list.back().causal = true;
        change(list.back());
    };
    add("decode", 4, 1, 128, [](cases::Case &) {});
    add("decode_a_head_for_each", 2, 1, 64, [](cases::Case &c) { c.sinks = cases::Sinks::kMixed; });
    // More heads of a kv head than a tile has rows, and as many as three tiles have.
    add("decode_many_heads", 40, 1, 96, [](cases::Case &) {});
    add("decode_some_rows", 6, 7, 256, [](cases::Case &) {});
    add("decode_ragged", 8, 2, 192, [](cases::Case &c) {
        c.batch = 4;
        c.q_lengths = {2, 1, 0, 2};
        c.kv_lengths = {700, 130, 64, 0};
    });
    add("decode_window", 4, 3, 128, [](cases::Case &c) {
        c.window_left = 333;
        c.data = cases::Data::kPoisonHidden;
    });
    return list;
}

constexpr hattn_algorithm kAlgorithms[] = {HATTN_ALGORITHM_FLASH, HATTN_ALGORITHM_SPLIT_KV};

// Partial states are float32 whatever the output is.
const std::vector<cases::StoredTypes> kTypesAlike = {kTypes[0], kTypes[2]};

using Run = std::tuple<cases::Case, cases::StoredTypes, hattn_algorithm>;

std::string name_of(const testing::TestParamInfo<Run> &run) {
    const auto &[c, types, algorithm] = run.param;
    return c.name + "__" + types.name + "__" + test::algorithm_name(algorithm);
}

class MatrixKernels : public testing::TestWithParam<Run> {
protected:
    void SetUp() override {
        if (!test::has_cuda_kernels()) {
            GTEST_SKIP() << "the build has no kernels for cuda";
        }
    }

    // What the runtime takes by itself has to be a kernel for tensor cores.
    static void expect_oracle(cases::TypedProblem &problem, hattn_algorithm algorithm) {
        problem.desc.device = HATTN_CUDA;
        problem.desc.algorithm = algorithm;
        const test::PlanPtr plan = test::make_plan(test::device_context(), problem.desc);
        ASSERT_EQ(test::explanation_of(plan.get()).at("algorithm"), test::algorithm_name(algorithm));
        ASSERT_EQ(test::matrix_type(plan.get()), problem.desc.dtype);
        test::expect_oracle(test::device_context(), problem, HATTN_FLOAT32);
    }
};

TEST_P(MatrixKernels, MatchOracle) {
    const auto &[c, types, algorithm] = GetParam();
    SCOPED_TRACE(cases::describe(c));
    cases::TypedProblem problem(c, types);
    expect_oracle(problem, algorithm);
}

INSTANTIATE_TEST_SUITE_P(All, MatrixKernels,
                         testing::Combine(testing::ValuesIn(all_cases()), testing::ValuesIn(kTypes),
                                          testing::Values(HATTN_ALGORITHM_FLASH)),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Split, MatrixKernels,
                         testing::Combine(testing::ValuesIn(all_cases()), testing::ValuesIn(kTypesAlike),
                                          testing::Values(HATTN_ALGORITHM_SPLIT_KV)),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Decode, MatrixKernels,
                         testing::Combine(testing::ValuesIn(decode_cases()), testing::ValuesIn(kTypesAlike),
                                          testing::Values(HATTN_ALGORITHM_SPLIT_KV)),
                         name_of);

using MatrixOutputs = MatrixKernels;

// Where rows of the output are not aligned, elements are stored one by one.
TEST_P(MatrixOutputs, MayLieAnywhere) {
    const auto &[c, types, algorithm] = GetParam();
    cases::TypedProblem problem(c, types);
    const auto &extent = problem.args.out.extent;
    problem.out = cases::make_tensor(types.out, {extent[0], extent[1], extent[2], extent[3] + 1});
    problem.out.view.extent[3] -= 1;
    problem.args.out = problem.out.view;
    expect_oracle(problem, algorithm);
}

INSTANTIATE_TEST_SUITE_P(All, MatrixOutputs,
                         testing::Combine(testing::Values(test::matrix_case("rows_of_odd_length")),
                                          testing::ValuesIn(kTypes), testing::Values(HATTN_ALGORITHM_FLASH)),
                         name_of);

// A side in pages that lie in reverse order, with pages of NaN between them.
struct Pages {
    Pages(const hattn_tensor &side, int64_t page_size)
        : columns((side.extent[2] + page_size - 1) / page_size),
          tensor(cases::make_tensor(side.dtype,
                                    {2 * side.extent[0] * columns, side.extent[1], page_size, side.extent[3]})) {
        cases::fill_bytes(tensor, 0xff);
        for (int64_t b = 0; b < side.extent[0]; ++b) {
            for (int64_t p = 0; p < columns; ++p) {
                table.push_back(static_cast<int32_t>(tensor.view.extent[0] - 1 - 2 * (b * columns + p)));
            }
        }
        cases::for_each_index(cases::extents_of(side), [&](int64_t b, int64_t h, int64_t j, int64_t d) {
            cases::element<uint16_t>(tensor.view, table[static_cast<size_t>(b * columns + j / page_size)], h,
                                     j % page_size, d) = cases::element<uint16_t>(side, b, h, j, d);
        });
    }
    int64_t columns;
    cases::TensorData tensor;
    std::vector<int32_t> table;
};

using PagedMatrixKernels = MatrixKernels;

TEST_P(PagedMatrixKernels, MatchOracle) {
    const auto &[c, types, algorithm] = GetParam();
    cases::TypedProblem problem(c, types);
    constexpr int64_t kPageSize = 32;
    const Pages key(problem.k.view, kPageSize), value(problem.v.view, kPageSize);
    const test::PlanPtr plan = [&] {
        hattn_attention_desc desc = problem.desc;
        desc.device = HATTN_CUDA;
        desc.algorithm = algorithm;
        desc.page_size = kPageSize;
        return test::make_plan(test::device_context(), desc);
    }();
    ASSERT_EQ(test::matrix_type(plan.get()), types.v);
    hattn_attention_args args = problem.args;
    args.k = key.tensor.view;
    args.v = value.tensor.view;
    args.block_table = key.table.data();
    args.block_table_stride = key.columns;
    problem.fill_outputs();
    const test::Outcome outcome = test::execute(plan.get(), args);
    ASSERT_TRUE(outcome.ok()) << outcome.text();
    problem.read_output();
    EXPECT_EQ(cases::difference(problem.twin, problem.evaluate(types.v)), "");
}

cases::Case paged_case() {
    cases::Case c = test::matrix_case("paged");
    c.batch = 2;
    c.causal = true;
    c.kv_lengths = {150, 77};
    return c;
}

INSTANTIATE_TEST_SUITE_P(All, PagedMatrixKernels,
                         testing::Combine(testing::Values(paged_case()), testing::ValuesIn(kTypes),
                                          testing::ValuesIn(kAlgorithms)),
                         name_of);

}  // namespace
