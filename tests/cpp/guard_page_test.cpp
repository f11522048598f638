// Kernels touch nothing outside their tensors: every tensor and vector borders on a page that faults. Keys and values
// past kv_lengths lie on such a page.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <ostream>

#include "case_list.h"
#include "support/guarded_memory.h"
#include "support/run.h"
#include "support/target_test.h"
#include "support/targets.h"

namespace {

using namespace hattn;
using test::Guard;
using test::GuardedMemory;

// Elements from the first to the last one.
int64_t span(const hattn_tensor &tensor) {
    int64_t last = 0;
    for (int dim = 0; dim < 4; ++dim) {
        if (tensor.extent[dim] == 0) {
            return 0;
        }
        last += tensor.extent[dim] > 1 ? (tensor.extent[dim] - 1) * tensor.stride[dim] : 0;
    }
    return last + 1;
}

// A problem whose arguments live in guarded memory.
class Guarded {
public:
    Guarded(cases::Problem &problem, Guard guard) : problem_(problem), guard_(guard) {
        hattn_attention_args &args = problem.args;
        for (hattn_tensor *tensor :
             {&args.q, &args.k, &args.v, &args.out, &args.lse, &args.scores, &args.bias, &args.mask}) {
            if (tensor->data) {
                auto bytes = static_cast<size_t>(span(*tensor)) * cases::element_size(tensor->dtype);
                tensor->data = moved(tensor->data, bytes);
            }
        }
        auto batch = static_cast<size_t>(problem.spec.batch);
        auto heads = static_cast<size_t>(problem.spec.query_heads);
        move_vector(args.alibi_slopes, heads);
        move_vector(args.sinks, heads);
        move_vector(args.q_lengths, batch);
        move_vector(args.kv_lengths, batch);
        move_vector(args.causal_offsets, batch);
    }

    // Copies the outputs back to where the comparison looks.
    void collect() {
        copy_back(problem_.args.out, problem_.out);
        copy_back(problem_.args.lse, problem_.lse);
        copy_back(problem_.args.scores, problem_.scores);
    }

private:
    void *moved(const void *from, size_t bytes) {
        memory_.push_back(std::make_unique<GuardedMemory>(bytes, guard_));
        if (bytes > 0) {
            std::memcpy(memory_.back()->data(), from, bytes);
        }
        return memory_.back()->data();
    }

    template<typename T>
    void move_vector(const T *&vector, size_t count) {
        if (vector) {
            vector = static_cast<const T *>(moved(vector, count * sizeof(T)));
        }
    }

    static void copy_back(const hattn_tensor &from, cases::TensorData &to) {
        if (to.given() && span(from) > 0) {
            std::memcpy(to.view.data, from.data, static_cast<size_t>(span(from)) * cases::element_size(from.dtype));
        }
    }

    cases::Problem &problem_;
    Guard guard_;
    std::vector<std::unique_ptr<GuardedMemory>> memory_;
};

cases::Case base(int64_t query_length, int64_t kv_length, int64_t dim) {
    cases::Case c;
    c.name = "guard_" + std::to_string(query_length) + "_" + std::to_string(kv_length) + "_" + std::to_string(dim);
    c.batch = 2;
    c.query_heads = 6;
    c.kv_heads = 2;
    c.query_length = query_length;
    c.kv_length = kv_length;
    c.key_dim = dim;
    c.value_dim = dim;
    return c;
}

std::vector<cases::Case> guard_cases() {
    std::vector<cases::Case> list;
    for (int64_t query_length : {1, 3, 29}) {
        for (int64_t kv_length : {1, 7, 61, 301}) {
            for (int64_t dim : {1, 5, 16, 20, 67}) {
                cases::Case c = base(query_length, kv_length, dim);
                list.push_back(c);
                if (dim != 20) {
                    continue;
                }
                c.name += "_hooks";
                c.causal = true;
                c.value_dim = 13;
                c.bias = cases::varying("bhqk");
                c.mask = cases::varying("bhqk");
                c.alibi = true;
                c.sinks = cases::Sinks::kNormal;
                c.scores = HATTN_SCORES_PROBABILITIES;
                c.layout = cases::Layout::kBshd;
                list.push_back(c);
                c.name += "_broadcast";
                c.bias = cases::varying("k");
                c.mask = cases::varying("q");
                list.push_back(c);
            }
        }
    }
    return list;
}

using Param = std::tuple<std::string, hattn_algorithm, Guard>;

std::string name_of(const testing::TestParamInfo<Param> &run) {
    const auto &[target, algorithm, guard] = run.param;
    return test::as_test_name(target) + "__" + test::algorithm_name(algorithm) +
           (guard == Guard::kAfter ? "__after" : "__before");
}

class GuardPage : public test::TargetTest<Param> {
protected:
    void check(const cases::Case &c, cases::Problem &problem, const cases::Expected &expected) {
        SCOPED_TRACE(cases::describe(c));
        Guarded guarded(problem, guard_);
        test::Outcome outcome = test::run(context_, problem, algorithm_);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        guarded.collect();
        EXPECT_EQ(cases::difference(problem, expected), "");
    }

    Guard guard_ = std::get<2>(GetParam());
};

TEST_P(GuardPage, AroundEveryArgument) {
    for (const cases::Case &c : guard_cases()) {
        test::Prepared data(c);
        check(c, data.problem, data.expected);
    }
}

// One sequence whose keys past its length would lie on the faulting page; with one head in [B, H, S, D], with several
// in [B, S, H, D].
TEST_P(GuardPage, KeysPastTheLength) {
    for (int64_t kv_heads : {1, 2}) {
        for (int32_t kv_length : {0, 1, 8, 31, 130, 257}) {
            for (int64_t query_length : {1, 20}) {
                cases::Case c = base(query_length, 400, 20);
                c.name += "_cut_" + std::to_string(kv_heads) + "_" + std::to_string(kv_length);
                c.batch = 1;
                c.kv_heads = kv_heads;
                c.kv_lengths = {kv_length};
                c.causal = true;
                c.layout = kv_heads == 1 ? cases::Layout::kBhsd : cases::Layout::kBshd;
                test::Prepared data(c);
                data.problem.args.k.extent[2] = data.problem.args.v.extent[2] = kv_length;  // what gets moved
                Guarded guarded(data.problem, Guard::kAfter);
                data.problem.args.k.extent[2] = data.problem.args.v.extent[2] = c.kv_length;
                test::Outcome outcome = test::run(context_, data.problem, algorithm_);
                ASSERT_TRUE(outcome.ok()) << outcome.text();
                guarded.collect();
                EXPECT_EQ(cases::difference(data.problem, data.expected), "") << cases::describe(c);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, GuardPage,
                         testing::Combine(testing::ValuesIn(test::target_names()), testing::ValuesIn(test::kAlgorithms),
                                          testing::Values(Guard::kAfter, Guard::kBefore)),
                         name_of);

}  // namespace
