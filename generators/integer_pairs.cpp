#include "integer_pairs.h"

#include <vector>

#include "stored_side.h"

namespace hattn::generators {

using namespace Halide;

namespace {

constexpr int kHalf = 4;  // bits

}  // namespace

Expr integer_bits(const Expr &value) {
    // What is added to this is rounded to an integer, whose bits are the lowest.
    constexpr float kUnitInLastBit = 3 << 22;
    return reinterpret<uint32_t>(strict_float(value + kUnitInLastBit));
}

Expr nearest_integer(const Expr &value) {
    return cast<int16_t>(integer_bits(value));
}

IntegerPairs::IntegerPairs(hattn_dtype type, int lanes, const Expr &dim, bool words)
    : RowSteps{type, lanes, dim,
               type != HATTN_INT4 ? kScaleBlock
               : words            ? 8 * lanes
                                  : 4 * lanes},
      words(words) {}

int IntegerPairs::vectors() const {
    return elements / (2 * lanes);
}

int IntegerPairs::runs() const {
    const int in_byte = type == HATTN_INT4 ? 2 : 1;
    return words ? 2 * in_byte : in_byte;
}

Expr IntegerPairs::number(const Row &byte, const Expr &position) const {
    if (runs() == 1) {
        return cast<int16_t>(reinterpret<int8_t>(byte(position)));
    }
    const int bytes = elements / 2;
    Expr both = cast<int16_t>(reinterpret<int8_t>(byte(start(position / elements) / 2 + position % bytes)));
    Expr first = (both << (16 - kHalf)) >> (16 - kHalf);
    return select(position % elements < bytes, first, both >> kHalf);
}

Expr IntegerPairs::word(const Row &byte, const Expr &at) const {
    const int length = elements / runs();
    Expr first = start(at / length) / (runs() / 2) + at % length * 2;
    return reinterpret<int16_t>(concat_bits({byte(first), byte(first + 1)}));
}

// Shifted up to the sign, and down again.
Expr IntegerPairs::part(const Expr &word, const Expr &run) const {
    const int bits = 16 / runs();
    std::vector<Expr> numbers;
    for (int i = 1; i < runs(); ++i) {
        numbers.push_back((word << (16 - bits * i)) >> (16 - bits));
    }
    numbers.push_back(word >> (16 - bits));
    return mux(run, numbers);
}

Expr IntegerPairs::query(const Row &element, const Expr &position) const {
    if (runs() == 1) {
        return element(position);
    }
    const int length = elements / runs();
    Expr step = position / elements, within = position % elements;
    Expr at = start(step) + within % length * runs() + within / length;
    Expr again = at < step * elements;  // those that the last step has again count once
    return select(again, 0.0f, element(min(at, dim - 1)));
}

Expr IntegerPairs::scale(const Row &of_block, const Expr &step, const Expr &lane) const {
    Expr first = start(step) / kScaleBlock;
    return elements > kScaleBlock ? select(lane < lanes / 2, of_block(first), of_block(first + 1)) : of_block(first);
}

Expr IntegerPairs::summed(const Expr &sum) const {
    Expr lane = sum % lanes;
    return sum / (2 * lanes) * (2 * lanes) + lane / kQuarter * (2 * kQuarter) + sum / lanes % 2 * kQuarter +
           lane % kQuarter;
}

Expr IntegerPairs::sum(const Row &at, const Expr &element) const {
    Expr position = element;
    if (runs() > 1) {
        Expr step = element / elements, within = element - start(step);
        position = step * elements + within % runs() * (elements / runs()) + within / runs();
    }
    Expr number = position % (2 * lanes);
    Expr sum =
        position - number + number / kQuarter % 2 * lanes + number / (2 * kQuarter) * kQuarter + number % kQuarter;
    return at(unsafe_promise_clamped(sum, 0, positions() - 1));
}

}  // namespace hattn::generators
