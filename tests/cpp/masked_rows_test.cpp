// Vectors at the end of a row, as Halide compiles them for this CPU: what is behind it is not touched.
#include "schedules/simd/masked_rows.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <tuple>

#include "support/guarded_memory.h"
#include "support/lowered_text.h"

namespace {

using namespace Halide;
using hattn::schedules::simd::MaskedRows;
using hattn::test::Guard;
using hattn::test::GuardedMemory;
using hattn::test::lowered_text;

constexpr int kRows = 3;

// out(d, r) = the elements of a row, then anything. `named`: the index is in a let, as that of two loads is.
struct Copy {
    ImageParam rows;
    Func out{"out"};

    Copy(Type type, const std::string &name, int lanes, bool named, const Target &target) : rows(type, 2, name) {
        Var d("d"), r("r"), block("block");
        Expr element = min(likely(d), rows.dim(0).extent() - 1);
        Expr index = element + r * rows.dim(1).stride();
        Expr copied = named ? select(r < 0, rows(element, r) + cast(type, index), rows(element, r)) : rows(element, r);
        out(d, r) = copied;
        out.split(d, block, d, lanes, TailStrategy::RoundUp).vectorize(d).partition(block, Partition::Always);
        out.output_buffer().dim(0).set_min(0);
        out.add_custom_lowering_pass(new MaskedRows(target));
    }

    std::string lowered(const Target &target) {
        return lowered_text(out, {rows}, target);
    }
};

bool has_masks(const Target &target, int bits) {
    return target.has_feature(Target::AVX512_Skylake) || (target.has_feature(Target::AVX2) && bits == 32);
}

std::string name_of_values(int bits) {
    return bits == 32 ? "value" : bits == 16 ? "value_halves" : "value_bytes";
}

class Ends : public testing::TestWithParam<std::tuple<Type, int, bool>> {};

TEST_P(Ends, AreLoadedAndNothingBehindThem) {
    const auto [type, lanes, named] = GetParam();
    const Target target = get_host_target().with_feature(Target::NoBoundsQuery).with_feature(Target::NoAsserts);
    if (!has_masks(target, type.bits())) {
        GTEST_SKIP() << "this CPU has no masks for " << type.bits() << " bits";
    }
    Copy copy(type, name_of_values(type.bits()), lanes, named, target);
    for (int dim = 1; dim <= 2 * lanes + 1; ++dim) {
        const size_t bytes = static_cast<size_t>(dim * kRows * type.bytes());
        GuardedMemory memory(bytes, Guard::kAfter);
        auto *first = reinterpret_cast<uint8_t *>(memory.data());
        for (size_t i = 0; i < bytes; ++i) {
            first[i] = static_cast<uint8_t>(i % 100 + 1);
        }
        copy.rows.set(Buffer<>(type, first, std::vector<int>{dim, kRows}));
        const int padded = (dim + lanes - 1) / lanes * lanes;
        Buffer<> found(type, padded, kRows);
        copy.out.realize(found, target);
        for (int r = 0; r < kRows; ++r) {
            const auto *expected = first + r * dim * type.bytes();
            const auto *row = static_cast<uint8_t *>(found.data()) + r * padded * type.bytes();
            for (int byte = 0; byte < padded * type.bytes(); ++byte) {
                EXPECT_EQ(row[byte], byte < dim * type.bytes() ? expected[byte] : 0)
                    << "byte " << byte << " of row " << r << " of " << dim << " elements";
            }
        }
    }
    EXPECT_EQ(copy.lowered(target).find("[min(ramp"), std::string::npos) << copy.lowered(target);
}

INSTANTIATE_TEST_SUITE_P(Types, Ends,
                         testing::Combine(testing::Values(Float(32), UInt(16), UInt(8)), testing::Values(8, 16),
                                          testing::Bool()),
                         [](const auto &run) {
                             return "bits" + std::to_string(std::get<0>(run.param).bits()) + "_lanes" +
                                    std::to_string(std::get<1>(run.param)) + (std::get<2>(run.param) ? "_named" : "");
                         });

// Other tensors may need what a clamped index finds.
TEST(MaskedRows, AreThoseOfQueriesKeysValuesAndOperandsOfHooksAlone) {
    const Target target("x86-64-linux-avx2-avx512-avx512_skylake-avx-sse41-fma-f16c-no_asserts-no_bounds_query");
    EXPECT_EQ(Copy(Float(32), "key", 16, false, target).lowered(target).find("[min(ramp"), std::string::npos);
    EXPECT_EQ(Copy(Float(32), "bias", 16, false, target).lowered(target).find("[min(ramp"), std::string::npos);
    EXPECT_EQ(Copy(UInt(8), "mask", 16, false, target).lowered(target).find("[min(ramp"), std::string::npos);
    EXPECT_NE(Copy(Float(32), "sinks", 16, false, target).lowered(target).find("[min(ramp"), std::string::npos);
}

// A bias of -inf hides its key, as hooks find by its bits.
TEST(MaskedRows, KeepInfinities) {
    const Target target = get_host_target().with_feature(Target::NoBoundsQuery).with_feature(Target::NoAsserts);
    if (!target.has_feature(Target::AVX512_Skylake)) {
        GTEST_SKIP() << "this CPU has no masks for biases";
    }
    constexpr int kDim = 19, kLanes = 16, kPadded = 32;
    ImageParam bias(Float(32), 1, "bias");
    bias.dim(0).set_min(0);
    Var d("d"), block("block");
    Func out("out");
    Expr element = bias(min(likely(d), bias.dim(0).extent() - 1));
    out(d) = select(reinterpret<uint32_t>(element) == Expr(uint32_t{0xff800000}), 1, 0);
    out.split(d, block, d, kLanes, TailStrategy::RoundUp).vectorize(d).partition(block, Partition::Always);
    out.output_buffer().dim(0).set_min(0);
    out.add_custom_lowering_pass(new MaskedRows(target));
    Buffer<float> given(kDim);
    given.fill(-std::numeric_limits<float>::infinity());
    bias.set(given);
    Buffer<int> found(kPadded);
    out.realize(found, target);
    for (int i = 0; i < kPadded; ++i) {
        EXPECT_EQ(found(i), i < kDim ? 1 : 0) << i;
    }
}

TEST(MaskedRows, NeedTargetsThatHaveMasks) {
    const Target avx2("x86-64-linux-avx2-avx-sse41-fma-f16c-no_asserts-no_bounds_query");
    EXPECT_EQ(Copy(Float(32), "value", 8, false, avx2).lowered(avx2).find("[min(ramp"), std::string::npos);
    EXPECT_NE(Copy(Float(32), "key", 8, false, avx2).lowered(avx2).find("[min(ramp"), std::string::npos);
    EXPECT_NE(Copy(UInt(16), "value_halves", 8, false, avx2).lowered(avx2).find("[min(ramp"), std::string::npos);
    const Target arm("arm-64-linux-no_asserts-no_bounds_query");
    EXPECT_NE(Copy(Float(32), "value", 4, false, arm).lowered(arm).find("[min(ramp"), std::string::npos);
}

}  // namespace
