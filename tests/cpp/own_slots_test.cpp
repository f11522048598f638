// Where arrays on the stack are allocated, as Halide lowers pipelines with the pass.
#include "schedules/own_slots.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/lowered_text.h"

namespace {

using namespace Halide;
using hattn::schedules::OwnSlots;
using hattn::test::count_of;
using hattn::test::lowered_text;

constexpr int kRows = 5, kSums = 4, kParts = 6;

// out(s, r) = the sum of squares of parts of a row. A row's squares, through which a loop goes, are freed before its
// sums.
struct SumsOfSquares {
    ImageParam rows{Float(32), 2, "rows"};
    Func squares{"squares"}, sums{"sums"}, out{"out"};

    explicit SumsOfSquares(bool twice) {
        Var s("s"), p("p"), r("r");
        RDom parts(0, kParts, "parts");
        squares(s, p, r) = rows(s + kSums * p, r) * rows(s + kSums * p, r);
        sums(s, r) = 0.0f;
        sums(s, r) += squares(s, parts, r);
        out(s, r) = sums(s, r);
        out.bound(s, 0, kSums).vectorize(s).output_buffer().dim(0).set_min(0);
        if (twice) {
            out.specialize(rows.dim(1).extent() > kRows);
        }
        sums.compute_at(out, r).vectorize(s).update().vectorize(s);
        squares.compute_at(out, r).bound_extent(s, kSums).bound_extent(p, kParts).vectorize(s);
        out.add_custom_lowering_pass(new OwnSlots());
    }

    std::string lowered() {
        return lowered_text(out, {rows});
    }
};

class Slots : public testing::TestWithParam<bool> {};

TEST_P(Slots, SumsHaveOneOfTheirOwnAndWhatLoopsGoThroughSharesIts) {
    SumsOfSquares pipeline(GetParam());
    const std::string text = pipeline.lowered();
    const std::string sums = pipeline.sums.name(), squares = pipeline.squares.name();
    const size_t loop = text.find("for (" + pipeline.out.name());
    ASSERT_NE(loop, std::string::npos) << text;
    EXPECT_EQ(count_of(text, "allocate " + sums + "["), 1) << text;
    EXPECT_LT(text.find("allocate " + sums + "["), loop) << text;
    EXPECT_EQ(count_of(text, "free " + sums), 0) << text;
    const int loops = GetParam() ? 2 : 1;
    EXPECT_EQ(count_of(text, "allocate " + squares + "["), loops) << text;
    EXPECT_GT(text.find("allocate " + squares + "["), loop) << text;
    EXPECT_EQ(count_of(text, "free " + squares), loops) << text;
}

TEST_P(Slots, ResultsStay) {
    Buffer<float> rows(kSums * kParts, kRows);
    rows.for_each_element([&](int d, int r) { rows(d, r) = static_cast<float>(d - 3 * r); });
    SumsOfSquares pipeline(GetParam());
    pipeline.rows.set(rows);
    Buffer<float> out = pipeline.out.realize({kSums, kRows});
    for (int r = 0; r < kRows; ++r) {
        for (int s = 0; s < kSums; ++s) {
            float sum = 0;
            for (int p = 0; p < kParts; ++p) {
                sum += rows(s + kSums * p, r) * rows(s + kSums * p, r);
            }
            EXPECT_EQ(out(s, r), sum) << s << ", row " << r;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Loops, Slots, testing::Bool(),
                         [](const auto &info) { return info.param ? "Specialized" : "One"; });

}  // namespace
