// Horizontal sums of several vectors at once, as Halide compiles them for this CPU.
#include "schedules/simd/adjacent_sums.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "support/lowered_text.h"

namespace {

using namespace Halide;
using hattn::schedules::simd::AdjacentSums;
using hattn::test::lowered_text;

constexpr int kVectors = 3;  // of a row

// dot(k, r) += a(., k) . b(., r), all of it in one block: the statements that decode has.
struct DotProducts {
    ImageParam a{Float(32), 2, "a"}, b{Float(32), 2, "b"};
    Func dot{"dot"}, out{"out"};

    DotProducts(int lanes, int keys, int rows, bool keys_innermost) {
        Var k("k"), r("r"), lane("lane");
        RDom over(0, kVectors * lanes, "over");
        RVar vector("vector"), within("within");
        dot(k, r) = cast<float>(100 * r + k);
        dot(k, r) += a(over, k) * b(over, r);
        out(k, r) = dot(k, r);
        out.bound(k, 0, keys).bound(r, 0, rows);
        dot.compute_root().bound(k, 0, keys).bound(r, 0, rows);
        dot.update().split(over, vector, within, lanes);
        Func sums = dot.update().rfactor(within, lane);
        dot.update().reorder(keys_innermost ? std::vector<VarOrRVar>{within, k, r}
                                            : std::vector<VarOrRVar>{within, r, k});
        dot.update().atomic().vectorize(within).unroll(k).unroll(r);
        sums.compute_root().reorder_storage(lane, k, r).vectorize(lane);
        sums.update().reorder(lane, k, r, vector).vectorize(lane);
        out.add_custom_lowering_pass(new AdjacentSums());
    }

    std::string lowered() {
        return lowered_text(out, {a, b});
    }
};

class Sums : public testing::TestWithParam<std::tuple<int, int, int, bool>> {};

TEST_P(Sums, AreThoseOfEachVectorAndTakeNoReduction) {
    const auto [lanes, keys, rows, keys_innermost] = GetParam();
    DotProducts products(lanes, keys, rows, keys_innermost);
    Buffer<float> a(kVectors * lanes, keys), b(kVectors * lanes, rows);
    a.for_each_element([&](int x, int k) { a(x, k) = static_cast<float>((5 * x + 3 * k) % 17 - 8); });
    b.for_each_element([&](int x, int r) { b(x, r) = static_cast<float>((7 * x + 11 * r) % 13 - 6); });
    products.a.set(a);
    products.b.set(b);
    const Buffer<float> found = products.out.realize({keys, rows});
    for (int r = 0; r < rows; ++r) {
        for (int k = 0; k < keys; ++k) {
            float expected = static_cast<float>(100 * r + k);
            for (int x = 0; x < kVectors * lanes; ++x) {
                expected += a(x, k) * b(x, r);
            }
            EXPECT_EQ(found(k, r), expected) << "key " << k << ", row " << r;
        }
    }
    const bool left = products.lowered().find("vector_reduce_add") != std::string::npos;
    const int sums = keys * rows;
    EXPECT_EQ(left, sums % 4 != 0) << products.lowered();
}

INSTANTIATE_TEST_SUITE_P(Blocks, Sums,
                         testing::Combine(testing::Values(8, 16), testing::Values(1, 2, 3, 4, 8, 12),
                                          testing::Values(1, 2, 8), testing::Bool()),
                         [](const auto &block) {
                             return "lanes" + std::to_string(std::get<0>(block.param)) + "_keys" +
                                    std::to_string(std::get<1>(block.param)) + "_rows" +
                                    std::to_string(std::get<2>(block.param)) +
                                    (std::get<3>(block.param) ? "_by_row" : "_by_key");
                         });

// quarters(k, q, r) += sums of each four lanes of a(., k, r).
template<typename T>
struct Fours {
    ImageParam a{type_of<T>(), 3, "a"};
    Func quarters{"quarters"}, out{"out"};

    Fours(int keys, int rows, int keys_of_array) {
        Var k("k"), q("q"), r("r"), lane("lane");
        RDom within(0, kLanes / kQuarters, "within");
        Func lanes("lanes");
        lanes(lane, k, r) = T(3) * a(lane, k, r);
        quarters(k, q, r) = cast<T>(k);
        quarters(k, q, r) += lanes(q * (kLanes / kQuarters) + within, k, r);
        out(k, q, r) = quarters(k, q, r);
        out.bound(k, 0, keys).bound(q, 0, kQuarters).bound(r, 0, rows);
        lanes.compute_root().vectorize(lane, kLanes);
        quarters.compute_root().bound(k, 0, keys_of_array).bound(r, 0, rows);
        quarters.update()
            .reorder(within, q, k, r)
            .atomic()
            .vectorize(within)
            .vectorize(q, kQuarters)
            .unroll(k)
            .unroll(r);
        out.add_custom_lowering_pass(new AdjacentSums());
    }

    static constexpr int kLanes = 16, kQuarters = 4;
};

template<typename T>
class SumsOfFours : public testing::Test {};
using Types = testing::Types<int, float>;
TYPED_TEST_SUITE(SumsOfFours, Types);

TYPED_TEST(SumsOfFours, AreThoseOfFourVectors) {
    using Products = Fours<TypeParam>;
    constexpr int kQuarters = Products::kQuarters;
    for (const int keys_of_array : {4, 8}) {  // only of four keys is a vector of sums one of the array
        constexpr int kKeys = 4, kRows = 3;
        Products fours(kKeys, kRows, keys_of_array);
        Buffer<TypeParam> a(Products::kLanes, keys_of_array, kRows);
        a.for_each_element(
            [&](int x, int k, int r) { a(x, k, r) = static_cast<TypeParam>((5 * x + 3 * k + 7 * r) % 17 - 8); });
        fours.a.set(a);
        const Buffer<TypeParam> found = fours.out.realize({kKeys, kQuarters, kRows});
        found.for_each_element([&](int k, int q, int r) {
            auto expected = static_cast<TypeParam>(k);
            for (int i = 0; i < kQuarters; ++i) {
                expected += 3 * a(q * kQuarters + i, k, r);
            }
            EXPECT_EQ(found(k, q, r), expected) << "key " << k << ", quarter " << q << ", row " << r;
        });
        const std::string text = lowered_text(fours.out, {fours.a});
        EXPECT_EQ(text.find("vector_reduce_add") != std::string::npos, keys_of_array != kKeys) << text;
    }
}

// sums(k, r) += what the quarters of lanes(., r) have for each k.
struct AcrossFours {
    ImageParam in{Float(32), 2, "in"};
    Func out{"out"};

    explicit AcrossFours(int rows) {
        Var k("k"), r("r"), lane("lane");
        RDom quarter(0, kFours, "quarter");
        Func lanes("lanes"), sums("sums");
        lanes(lane, r) = 3.0f * in(lane, r);
        sums(k, r) = cast<float>(k);
        sums(k, r) += lanes(quarter * kFours + k, r);
        out(k, r) = sums(k, r);
        out.bound(k, 0, kFours).bound(r, 0, rows);
        lanes.compute_root().bound(lane, 0, kLanes).bound(r, 0, rows).vectorize(lane);
        sums.compute_root().bound(k, 0, kFours).bound(r, 0, rows);
        sums.update().reorder(quarter, k, r).atomic().vectorize(quarter).vectorize(k).unroll(r);
        out.add_custom_lowering_pass(new AdjacentSums());
    }

    static constexpr int kFours = 4, kLanes = kFours * kFours;
};

class SumsAcrossFours : public testing::TestWithParam<int> {};

TEST_P(SumsAcrossFours, AreThoseOfEachVector) {
    const int rows = GetParam();
    constexpr int kFours = AcrossFours::kFours;
    AcrossFours across(rows);
    Buffer<float> in(AcrossFours::kLanes, rows);
    in.for_each_element([&](int x, int r) { in(x, r) = static_cast<float>((5 * x + 7 * r) % 17 - 8); });
    across.in.set(in);
    const Buffer<float> found = across.out.realize({kFours, rows});
    found.for_each_element([&](int k, int r) {
        float expected = static_cast<float>(k);
        for (int quarter = 0; quarter < kFours; ++quarter) {
            expected += 3 * in(quarter * kFours + k, r);
        }
        EXPECT_EQ(found(k, r), expected) << "lane " << k << ", row " << r;
    });
    const std::string text = lowered_text(across.out, {across.in});
    EXPECT_EQ(text.find("vector_reduce_add"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(Rows, SumsAcrossFours, testing::Values(1, 2, 3, 4, 5, 8));

}  // namespace
