// What is shuffled out of stored vectors, as Halide compiles it for this CPU.
#include "schedules/simd/whole_loads.h"

#include <gtest/gtest.h>

#include <string>

#include "support/lowered_text.h"

namespace {

using namespace Halide;
using hattn::schedules::simd::WholeLoads;
using hattn::test::lowered_text;

constexpr int kBytes = 64, kVectors = 2;

// Bytes `first` to first + 7 of each sixteen of two vectors, one of each in turn.
struct Interleaved {
    ImageParam in{UInt(8), 2, "in"};
    Func out{"out"};

    Interleaved(int first, bool with_pass) {
        Var at("at"), vector("vector"), of_half("of_half"), place("place");
        Func stored("stored");
        stored(at, vector) = in(at, vector) + cast<uint8_t>(1);
        out(vector, at) = stored(at / 8 * 16 + first + at % 8, vector);
        stored.compute_root().bound(at, 0, kBytes).bound(vector, 0, kVectors).vectorize(at, kBytes).unroll(vector);
        out.bound(vector, 0, kVectors).bound(at, 0, kBytes / 2);
        out.split(at, of_half, place, 8).reorder(vector, place, of_half);
        out.vectorize(vector).vectorize(place).vectorize(of_half);
        out.output_buffer().dim(0).set_bounds(0, kVectors);
        out.output_buffer().dim(1).set_bounds(0, kBytes / 2).set_stride(kVectors);
        if (with_pass) {
            out.add_custom_lowering_pass(new WholeLoads());
        }
    }

    std::string lowered() {
        return lowered_text(out, {in});
    }
};

TEST(WholeLoads, TakeVectorsAsTheyWereStored) {
    for (const int first : {0, 8}) {
        Buffer<uint8_t> in(kBytes, kVectors);
        in.for_each_element([&](int x, int y) { in(x, y) = static_cast<uint8_t>(3 * x + 100 * y); });
        Interleaved interleaved(first, true);
        interleaved.in.set(in);
        const Buffer<uint8_t> found = interleaved.out.realize({kVectors, kBytes / 2});
        found.for_each_element([&](int vector, int at) {
            EXPECT_EQ(found(vector, at), static_cast<uint8_t>(in(at / 8 * 16 + first + at % 8, vector) + 1));
        });
        const std::string part = "[ramp(" + std::to_string(first) + ", 1, 120)";
        EXPECT_NE(Interleaved(first, false).lowered().find(part), std::string::npos) << "nothing to do for the pass";
        EXPECT_EQ(interleaved.lowered().find(part), std::string::npos) << interleaved.lowered();
        EXPECT_NE(interleaved.lowered().find("[ramp(0, 1, 128)"), std::string::npos) << interleaved.lowered();
    }
}

// Two of each four numbers of a vector: what lies from the first to the last is less than the vector, and may begin
// within it.
TEST(WholeLoads, TakeAVectorOfWhichAPartIsShuffled) {
    constexpr int kFloats = 16, kFours = 4, kOfFour = 2;
    for (const int first : {0, kOfFour}) {
        ImageParam in(Float(32), 1, "in");
        Var four("four"), of_four("of_four"), at("at");
        Func stored("stored"), out("out");
        stored(at) = in(at) + 1.0f;
        out(four, of_four) = stored(four * kFours + of_four + first);
        stored.compute_root().bound(at, 0, kFloats).vectorize(at);
        out.bound(four, 0, kFours).bound(of_four, 0, kOfFour).vectorize(four).vectorize(of_four);
        out.output_buffer().dim(0).set_bounds(0, kFours);
        out.output_buffer().dim(1).set_bounds(0, kOfFour).set_stride(kFours);
        out.add_custom_lowering_pass(new WholeLoads());
        Buffer<float> numbers(kFloats);
        numbers.for_each_element([&](int x) { numbers(x) = static_cast<float>(x * x); });
        in.set(numbers);
        const Buffer<float> found = out.realize({kFours, kOfFour});
        found.for_each_element(
            [&](int x, int y) { EXPECT_EQ(found(x, y), numbers(x * kFours + y + first) + 1.0f) << x << ", " << y; });
        const std::string text = lowered_text(out, {in});
        // Where it begins with the vector it stays as it is.
        const std::string load = stored.name() + (first == 0 ? "[ramp(0, 1, 14)" : "[ramp(0, 1, 16)]");
        EXPECT_NE(text.find("shuffle(" + load), std::string::npos) << text;
    }
}

}  // namespace
