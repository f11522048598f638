// How the library computes is its own, and the caller's arithmetic as it was: results do not depend on how the calling
// thread rounds, nor on what it does with subnormal numbers.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstdlib>
#include <functional>
#include <limits>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "compare.h"
#include "support/attention_states.h"
#include "support/cache_model.h"
#include "support/run.h"

namespace {

using namespace hattn;

// Volatile: to be computed now.
float half_of_smallest() {
    volatile float smallest = std::numeric_limits<float>::min();
    volatile float half = smallest * 0.5f;
    return half;
}

TEST(FloatEnvironment, SubnormalsOfTheCallerStay) {
    ASSERT_GT(half_of_smallest(), 0.0f);
    const test::ContextPtr context = test::make_context(1);
    for (hattn_algorithm algorithm : test::kAlgorithms) {
        cases::Case c;
        c.name = "subnormals";
        c.query_length = 9;
        c.kv_length = 70;
        test::Prepared prepared(c);
        EXPECT_TRUE(test::run(context.get(), prepared.problem, algorithm).ok());
        EXPECT_EQ(cases::difference(prepared.problem, prepared.expected), "");
        EXPECT_GT(half_of_smallest(), 0.0f) << test::algorithm_name(algorithm);
    }
}

// Upwards, and on x86-64 without subnormal numbers, as torch.set_flush_denormal() has it.
class OtherArithmetic {
public:
    OtherArithmetic() {
        std::fegetenv(&before_);
        std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
        constexpr unsigned kDenormalsAreZero = 1u << 6;
        _mm_setcsr(_mm_getcsr() | _MM_FLUSH_ZERO_ON | kDenormalsAreZero);
#endif
    }
    ~OtherArithmetic() {
        std::fesetenv(&before_);
    }
    OtherArithmetic(const OtherArithmetic &) = delete;
    OtherArithmetic &operator=(const OtherArithmetic &) = delete;

private:
    std::fenv_t before_;
};

bool is_other_arithmetic() {
    bool flushes = true;
#if defined(__x86_64__)
    flushes = half_of_smallest() == 0.0f;
#endif
    return flushes && std::fegetround() == FE_UPWARD;
}

// What compute() returns does not depend on it, and it stays.
void expect_the_same(const std::function<std::vector<float>(hattn_context *)> &compute) {
    const std::vector<float> usual = compute(test::make_context(1).get());
    for (int32_t threads : {1, 2, 4}) {
        std::vector<float> values;
        bool stayed = false;
        {
            const OtherArithmetic other;
            values = compute(test::make_context(threads).get());
            stayed = is_other_arithmetic();
        }
        EXPECT_TRUE(test::same_bits(values, usual)) << threads << " threads";
        EXPECT_TRUE(stayed) << threads << " threads";
    }
}

cases::Case many_tasks(const char *name) {
    cases::Case c;
    c.name = name;
    c.batch = 3;
    c.query_heads = c.kv_heads = 4;
    c.query_length = 33;
    c.kv_length = 300;
    c.key_dim = c.value_dim = 40;
    c.softcap = 3.0f;
    return c;
}

TEST(FloatEnvironment, IsNoPartOfAttention) {
    for (hattn_algorithm algorithm : test::kAlgorithms) {
        SCOPED_TRACE(test::algorithm_name(algorithm));
        cases::Problem problem(many_tasks("rounded"));
        // Some keys and values are subnormal.
        for (const hattn_tensor *tensor : {&problem.args.k, &problem.args.v}) {
            auto *numbers = static_cast<float *>(tensor->data);
            for (int i = 0; i < 4000; i += 3) {
                numbers[i] = (i % 2 ? 1e-39f : -3e-40f);
            }
        }
        expect_the_same([&](hattn_context *context) {
            problem.fill_outputs();
            EXPECT_TRUE(test::run(context, problem, algorithm).ok());
            return test::output_values(problem);
        });
    }
}

TEST(FloatEnvironment, IsNoPartOfWhatCachesKeep) {
    cases::TensorData rows = cases::make_tensor(HATTN_FLOAT32, {2, 4, 96, 64});
    cases::fill_normal(rows.view, 7);
    cases::Case spec = many_tasks("kept");
    spec.batch = 2;
    spec.query_length = 2;
    spec.kv_length = 96;
    spec.key_dim = spec.value_dim = 64;
    cases::Problem problem(spec);
    problem.args.k = problem.args.v = HATTN_TENSOR_INIT;
    for (const hattn_dtype dtype : {HATTN_FLOAT16, HATTN_BFLOAT16, HATTN_INT8}) {
        expect_the_same([&](hattn_context *context) {
            hattn_kv_cache_desc desc = test::cache_desc(2, 4, 96, 64, 64);
            desc.dtype = desc.value_dtype = dtype;
            const test::CachePtr cache = test::make_cache(context, desc);
            EXPECT_EQ(hattn_kv_append(cache.get(), &rows.view, &rows.view, nullptr), HATTN_OK);
            problem.fill_outputs();
            EXPECT_EQ(hattn_kv_cache_attend(cache.get(), &problem.desc, &problem.args), HATTN_OK);
            return test::output_values(problem);
        });
    }
}

TEST(FloatEnvironment, IsNoPartOfMergedStates) {
    test::States states(5, {3, 4, 40, 24}, 11);
    expect_the_same([&](hattn_context *context) {
        states.clear();
        EXPECT_TRUE(states.merge(context).ok());
        std::vector<float> values = cases::dense_floats(states.out.view);
        const std::vector<float> lses = cases::dense_floats(states.lse.view);
        values.insert(values.end(), lses.begin(), lses.end());
        return values;
    });
}

// A parallel_for of the application's may do other things of its own meanwhile.
TEST(FloatEnvironment, CallbacksHaveTheCallers) {
    struct Seen {
        int calls = 0, others = 0;
    } seen;
    hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
    desc.threads = 2;
    desc.parallel_for_user = &seen;
    desc.parallel_for = [](void *user, int32_t count, void (*work)(void *, int32_t), void *closure) {
        auto &noted = *static_cast<Seen *>(user);
        for (int32_t i = 0; i < count; ++i) {
            noted.others += is_other_arithmetic();
            work(closure, i);
            noted.others += is_other_arithmetic();
            noted.calls += 2;
        }
    };
    // So may an allocator.
    desc.allocator_user = &seen;
    desc.allocate = [](void *user, size_t bytes, size_t alignment) {
        static_cast<Seen *>(user)->others += is_other_arithmetic();
        ++static_cast<Seen *>(user)->calls;
        return std::aligned_alloc(alignment, bytes);
    };
    desc.deallocate = [](void *user, void *memory) {
        static_cast<Seen *>(user)->others += is_other_arithmetic();
        ++static_cast<Seen *>(user)->calls;
        std::free(memory);
    };
    const test::ContextPtr context = test::new_context("", &desc).context;
    ASSERT_TRUE(context);
    test::Prepared prepared(many_tasks("called"));
    bool stayed = false;
    {
        const OtherArithmetic other;
        EXPECT_EQ(hattn_attention(context.get(), &prepared.problem.desc, &prepared.problem.args), HATTN_OK);
        stayed = is_other_arithmetic();
    }
    EXPECT_TRUE(stayed);
    EXPECT_GT(seen.calls, 2);
    EXPECT_EQ(seen.others, seen.calls);
    EXPECT_EQ(cases::difference(prepared.problem, prepared.expected), "");
}

}  // namespace
