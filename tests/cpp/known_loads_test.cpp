// What lies at known places of a small array, as Halide compiles it for this CPU.
#include "schedules/simd/known_loads.h"

#include <gtest/gtest.h>

#include <string>

#include "support/lowered_text.h"

namespace {

using namespace Halide;
using hattn::schedules::simd::KnownLoads;
using hattn::test::lowered_text;

constexpr int kWords = 16, kVectors = 2, kQuarter = 4;

// Two vectors that are interleaved within each half: the first four words of both halves, then the others.
struct Interleaved {
    ImageParam in{Int(16), 2, "in"};
    Func stored{"stored"}, out{"out"};

    explicit Interleaved(bool with_pass, int beyond = 0) {
        Var at("at"), vector("vector"), half("half"), quarter("quarter"), part("part");
        const int half_words = kWords / 2;
        stored(at, vector) = in(at, vector) + cast<int16_t>(1);
        Expr lane = at % half_words;
        Expr from = lane / kQuarter * half_words + at / half_words * kQuarter + lane % kQuarter;
        out(vector, at) = stored(from, vector);
        stored.compute_root().bound(vector, 0, kVectors).vectorize(at, kWords).unroll(vector);
        stored.bound_storage(at, kWords + beyond).bound_extent(at, kWords + beyond);
        out.bound(vector, 0, kVectors).bound(at, 0, kWords);
        out.split(at, half, quarter, half_words)
            .split(quarter, quarter, part, kQuarter)
            .reorder({vector, part, quarter, half})
            .vectorize(vector)
            .vectorize(part)
            .vectorize(quarter)
            .vectorize(half);
        out.output_buffer().dim(0).set_bounds(0, kVectors);
        out.output_buffer().dim(1).set_bounds(0, kWords).set_stride(kVectors);
        if (with_pass) {
            out.add_custom_lowering_pass(new KnownLoads());
        }
    }

    std::string lowered() {
        return lowered_text(out, {in});
    }
    std::string whole() const {
        return "shuffle(" + stored.name() + "[ramp(0, 1, 32)]";
    }
};

TEST(KnownLoads, ShuffleTheWholeArray) {
    Buffer<int16_t> in(kWords, kVectors);
    in.for_each_element([&](int x, int y) { in(x, y) = static_cast<int16_t>(3 * x + 1000 * y); });
    Interleaved interleaved(true);
    interleaved.in.set(in);
    const Buffer<int16_t> found = interleaved.out.realize({kVectors, kWords});
    found.for_each_element([&](int vector, int at) {
        const int from = at % 8 / 4 * 8 + at / 8 * 4 + at % 4;
        EXPECT_EQ(found(vector, at), in(from, vector) + 1) << vector << ", " << at;
    });
    Interleaved without(false);
    EXPECT_EQ(without.lowered().find(without.whole()), std::string::npos) << "nothing to do for the pass";
    EXPECT_NE(interleaved.lowered().find(interleaved.whole()), std::string::npos) << interleaved.lowered();
}

// More than registers hold at a time is left as it is.
TEST(KnownLoads, LeaveLargeArrays) {
    Interleaved large(true, kWords);
    EXPECT_EQ(large.lowered().find("shuffle(" + large.stored.name()), std::string::npos) << large.lowered();
}

// Places that are data are not known.
TEST(KnownLoads, LeavePlacesThatAreRead) {
    ImageParam in(Int(16), 1, "in"), places(Int(32), 1, "places");
    Var at("at");
    Func stored("stored"), out("out");
    stored(at) = in(at) + cast<int16_t>(1);
    out(at) = stored(unsafe_promise_clamped(places(at), 0, kWords - 1));
    stored.compute_root().bound(at, 0, kWords).vectorize(at);
    out.bound(at, 0, kWords).vectorize(at, kWords);
    out.add_custom_lowering_pass(new KnownLoads());
    EXPECT_EQ(lowered_text(out, {in, places}).find("shuffle(" + stored.name()), std::string::npos);
}

}  // namespace
