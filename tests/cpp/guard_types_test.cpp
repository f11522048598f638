// Kernels for any storage type touch nothing outside their tensors: every tensor in a type borders on a page that
// faults.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "compare.h"
#include "support/guarded_memory.h"
#include "support/run.h"
#include "support/target_test.h"
#include "support/targets.h"
#include "support/typed_run.h"
#include "typed_problem.h"

namespace {

using namespace hattn;
using cases::ScaleKind;
using test::Guard;
using test::GuardedMemory;

size_t bytes_of(const hattn_tensor &tensor) {
    int64_t elements = 1;
    for (int d = 0; d < 4; ++d) {
        elements += (tensor.extent[d] - 1) * tensor.stride[d];
    }
    return tensor.dtype == HATTN_INT4 ? static_cast<size_t>((elements + 1) / 2)
                                      : static_cast<size_t>(elements) * cases::element_size(tensor.dtype);
}

// Moves the tensors of a problem.
std::vector<std::unique_ptr<GuardedMemory>> guard(cases::TypedProblem &problem, Guard side) {
    std::vector<std::unique_ptr<GuardedMemory>> memory;
    hattn_attention_args &args = problem.args;
    for (hattn_tensor *tensor : {&args.q, &args.k, &args.v, &args.out, &args.k_scale, &args.v_scale}) {
        if (tensor->data) {
            memory.push_back(std::make_unique<GuardedMemory>(bytes_of(*tensor), side));
            std::memcpy(memory.back()->data(), tensor->data, bytes_of(*tensor));
            tensor->data = memory.back()->data();
        }
    }
    return memory;
}

constexpr cases::StoredTypes kTypes[] = {
    {"float16", HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16},
    {"bfloat16", HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16},
    {"int8", HATTN_FLOAT32, HATTN_INT8, HATTN_INT8, HATTN_FLOAT32, ScaleKind::kKey, ScaleKind::kKey},
    {"int4", HATTN_FLOAT32, HATTN_INT4, HATTN_INT4, HATTN_FLOAT32, ScaleKind::kKey, ScaleKind::kChannel},
    {"int4_blocks", HATTN_FLOAT32, HATTN_INT4, HATTN_INT4, HATTN_FLOAT32, ScaleKind::kKey, ScaleKind::kKey},
    {"float32_and_int4", HATTN_FLOAT32, HATTN_FLOAT32, HATTN_INT4, HATTN_FLOAT16, ScaleKind::kTensor, ScaleKind::kHead},
};

class GuardedTypes : public test::TargetTest<std::tuple<std::string, hattn_algorithm, Guard>> {};

TEST_P(GuardedTypes, TouchNothingOutside) {
    for (const cases::StoredTypes &types : kTypes) {
        for (int64_t query_length : {1, 19}) {
            for (int64_t kv_length : {1, 61, 300, 333}) {
                for (int64_t dim : {1, 7, 16, 32, 33, 67, 96, 128}) {
                    cases::Case c;
                    c.name = "guarded_types_" + std::to_string(dim);
                    // Rows of a kv head: 8, 4, 2, 4.
                    c.query_heads = kv_length == 61 ? 16 : kv_length == 300 ? 4 : 8;
                    c.kv_heads = 2;
                    c.query_length = query_length;
                    c.kv_length = kv_length;
                    c.key_dim = dim;
                    c.value_dim = dim == 96 && kv_length != 333 ? 64 : dim;
                    c.mask = cases::varying(dim == 16 ? "qk" : "");
                    c.mask.given = dim == 16;
                    cases::TypedProblem problem(c, types);
                    const auto memory = guard(problem, std::get<2>(GetParam()));
                    problem.twin.fill_outputs();
                    problem.desc.algorithm = algorithm_;
                    hattn_plan *plan = nullptr;
                    ASSERT_EQ(hattn_plan_create(context_, &problem.desc, &plan), HATTN_OK);
                    const test::PlanPtr owner(plan);
                    const test::Outcome outcome = test::execute(plan, problem.args);
                    ASSERT_TRUE(outcome.ok()) << outcome.text();
                    problem.read_output();
                    const hattn_dtype weight_type = test::weight_type_on(std::get<0>(GetParam()), types);
                    const auto integers = test::integer_products(std::get<0>(GetParam()), types);
                    const bool two_terms = test::multiplies_two_terms(plan);
                    ASSERT_EQ(cases::difference(problem.twin, problem.evaluate(weight_type, integers, two_terms)), "")
                        << types.name << ' ' << cases::describe(c);
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, GuardedTypes,
                         testing::Combine(testing::ValuesIn(test::target_names()), testing::ValuesIn(test::kAlgorithms),
                                          testing::Values(Guard::kAfter, Guard::kBefore)),
                         [](const auto &run) {
                             return test::as_test_name(std::get<0>(run.param)) + "__" +
                                    test::algorithm_name(std::get<1>(run.param)) +
                                    (std::get<2>(run.param) == Guard::kAfter ? "__after" : "__before");
                         });

}  // namespace
