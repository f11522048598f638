// Bytes of words, as Halide compiles them for this CPU.
#include "schedules/simd/word_bytes.h"

#include <gtest/gtest.h>

#include <string>

#include "generators/integer_digits.h"
#include "support/lowered_text.h"

namespace {

using namespace Halide;
using hattn::generators::kDigitBase;
using hattn::generators::kDigits;
using hattn::generators::kLargestDigits;
using hattn::schedules::simd::WordBytes;
using hattn::test::count_of;
using hattn::test::lowered_text;

constexpr int kLanes = 16, kVectors = 3;

// digits(x, digit, y) of numbers(x, y), the lowest 16 bits of words whose upper ones are anything.
struct Digits {
    ImageParam numbers{Int(32), 2, "numbers"};
    Func digits{"digits"};

    // Digits of a vector lie side by side, or those of all of a kind.
    Digits(int lanes, bool side_by_side) {
        Var x("x"), digit("digit"), y("y");
        Expr bits = cast<uint32_t>(numbers(x, y)) ^ Expr(uint32_t{0x4b400000});
        digits(x, digit, y) = hattn::generators::digit_of_bits(bits, digit);
        digits.bound(x, 0, kLanes).bound(digit, 0, kDigits).bound(y, 0, kVectors);
        digits.reorder(x, digit, y).vectorize(x, lanes).unroll(x).unroll(digit);
        digits.output_buffer().dim(0).set_bounds(0, kLanes);
        digits.output_buffer().dim(1).set_bounds(0, kDigits).set_stride(side_by_side ? kLanes : kLanes * kVectors);
        digits.output_buffer().dim(2).set_bounds(0, kVectors).set_stride(side_by_side ? kDigits * kLanes : kLanes);
        digits.add_custom_lowering_pass(new WordBytes(get_host_target()));
    }

    std::string lowered() {
        return lowered_text(digits, {numbers});
    }
};

TEST(WordBytes, AreTheDigitsOfNumbers) {
    for (const int lanes : {1, 8, kLanes}) {
        for (const bool side_by_side : {true, false}) {
            Digits digits(lanes, side_by_side);
            Buffer<int> numbers(kLanes, kVectors);
            numbers.for_each_element([&](int x, int y) {
                const int steps[] = {0, 1, 127, 128, 129, 255, 256, 383, 384, kLargestDigits};
                numbers(x, y) = (x % 2 == 0 ? 1 : -1) * steps[(x / 2 + 3 * y) % std::size(steps)];
            });
            digits.numbers.set(numbers);
            Buffer<int8_t> found(kLanes, side_by_side ? kDigits : kVectors, side_by_side ? kVectors : kDigits);
            if (!side_by_side) {
                found.transpose(1, 2);
            }
            digits.digits.realize(found);
            numbers.for_each_element([&](int x, int y) {
                EXPECT_EQ(found(x, 0, y) + kDigitBase * found(x, 1, y), numbers(x, y))
                    << "lane " << x << ", vector " << y << ", " << lanes << " lanes at a time";
            });
        }
    }
}

TEST(WordBytes, SideBySideAreStoredAtOnce) {
    const auto stores = [](bool side_by_side) {
        Digits digits(kLanes, side_by_side);
        const std::string text = digits.lowered();
        EXPECT_EQ(text.find(hattn::generators::kWordByteCall), std::string::npos) << text;
        return count_of(text, digits.digits.name() + "[ramp(");
    };
    EXPECT_EQ(stores(true), 1);
    EXPECT_EQ(stores(false), kDigits);
}

// upper(x) is 16 times byte x, without what does not fit.
struct ShiftedBytes {
    static constexpr int kBits = 4, kBytes = 64;
    ImageParam bytes{UInt(8), 1, "bytes"};
    Func upper{"upper"};

    explicit ShiftedBytes(const Target &target) {
        Var x("x");
        upper(x) = bytes(x) << cast<uint8_t>(kBits);
        upper.bound(x, 0, kBytes).vectorize(x, kBytes);
        upper.add_custom_lowering_pass(new WordBytes(target));
    }
};

TEST(WordBytes, BytesAreShiftedAsWordsOnX86) {
    const std::string of_bytes = "(uint8x64)shift_left", of_words = "(uint32x16)shift_left";
    for (const bool on_x86 : {true, false}) {
        ShiftedBytes shifted(Target(on_x86 ? "x86-64-linux" : "arm-64-linux"));
        const std::string text = lowered_text(shifted.upper, {shifted.bytes});
        EXPECT_EQ(count_of(text, on_x86 ? of_words : of_bytes), 1) << text;
        EXPECT_EQ(count_of(text, on_x86 ? of_bytes : of_words), 0) << text;
    }
}

TEST(WordBytes, BytesThatAreShiftedGetNothingFromTheirNeighbours) {
    ShiftedBytes shifted(get_host_target());
    Buffer<uint8_t> bytes(ShiftedBytes::kBytes);
    bytes.for_each_element([&](int x) { bytes(x) = static_cast<uint8_t>(37 * x + 255); });
    shifted.bytes.set(bytes);
    Buffer<uint8_t> found = shifted.upper.realize({ShiftedBytes::kBytes});
    bytes.for_each_element(
        [&](int x) { EXPECT_EQ(found(x), static_cast<uint8_t>(bytes(x) << ShiftedBytes::kBits)) << "byte " << x; });
}

}  // namespace
