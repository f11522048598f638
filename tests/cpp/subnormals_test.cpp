// What kernels do with subnormal numbers is theirs alone: the caller's arithmetic is as it was.
#include <gtest/gtest.h>

#include <limits>

#include "compare.h"
#include "support/run.h"

namespace {

using namespace hattn;

// Volatile: to be computed now.
float half_of_smallest() {
    volatile float smallest = std::numeric_limits<float>::min();
    volatile float half = smallest * 0.5f;
    return half;
}

TEST(Subnormals, OfTheCallerStay) {
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

}  // namespace
