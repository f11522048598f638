// Ends of loops that Halide copies, and what is specialized in them.
#include "schedules/simd/general_ends.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/lowered_text.h"

namespace {

using namespace Halide;
using hattn::schedules::simd::GeneralEnds;
using hattn::schedules::simd::kKeyBlockLoop;
using hattn::test::count_of;
using hattn::test::lowered_text;

constexpr int kUsual = 16, kUnroll = 4;

// Rows of which the last is repeated, in blocks: with a copy of the loop where a row may be the last one.
struct Blocks {
    ImageParam in;
    Func out{"out"};

    Blocks(const std::string &loop, bool with_pass, const std::string &array = "key") : in(Float(32), 2, array) {
        Var d("d"), k("k"), block(loop), inner("inner");
        Func copied("copied");
        copied(d, k) = in(d, min(likely(k), in.dim(1).extent() - 1)) + 1.0f;
        out(d, k) = copied(d, k) * 2.0f;
        in.dim(0).set_min(0);
        in.dim(1).set_min(0);
        out.output_buffer().dim(0).set_bounds(0, in.dim(0).extent());
        out.split(k, block, inner, kUnroll, TailStrategy::RoundUp)
            .partition(block, Partition::Always)
            .reorder(d, inner, block);
        copied.compute_at(out, block).unroll(k);
        copied.specialize(in.dim(0).extent() == kUsual).vectorize(d, kUsual);
        if (with_pass) {
            out.add_custom_lowering_pass(new GeneralEnds());
        }
    }

    // How often rows of the usual size are copied as vectors.
    int vectors() {
        return count_of(lowered_text(out, {in}), in.name() + "[ramp(");
    }
};

TEST(GeneralEnds, AreNotSpecialized) {
    EXPECT_EQ(Blocks(kKeyBlockLoop, false).vectors(), 2 * kUnroll) << "nothing to do for the pass";
    EXPECT_EQ(Blocks(kKeyBlockLoop, true).vectors(), kUnroll);
}

TEST(GeneralEnds, AreOfLoopsThatAreNamed) {
    EXPECT_EQ(Blocks("another_loop", true).vectors(), 2 * kUnroll);
}

// What has another extent may be computed otherwise: a bias with one key for all.
TEST(GeneralEnds, KeepWhatIsNotOfHeads) {
    EXPECT_EQ(Blocks(kKeyBlockLoop, true, "bias").vectors(), 2 * kUnroll);
}

TEST(GeneralEnds, ComputeTheSame) {
    for (const int elements : {kUsual, kUsual + 3}) {
        Blocks blocks(kKeyBlockLoop, true);
        constexpr int kRows = 6;
        Buffer<float> in(elements, kRows);
        in.for_each_element([&](int d, int k) { in(d, k) = static_cast<float>(d + 100 * k); });
        blocks.in.set(in);
        const Buffer<float> found = blocks.out.realize({elements, 2 * kUnroll});
        found.for_each_element([&](int d, int k) {
            ASSERT_EQ(found(d, k), 2 * (in(d, std::min(k, kRows - 1)) + 1)) << "element " << d << " of row " << k;
        });
    }
}

}  // namespace
