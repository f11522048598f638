#include "integer_pairs.h"

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

IntegerPairs::IntegerPairs(hattn_dtype type, int lanes, const Expr &dim)
    : RowSteps{type, lanes, dim, type == HATTN_INT4 ? 4 * lanes : kScaleBlock} {}

int IntegerPairs::vectors() const {
    return elements / (2 * lanes);
}

Expr IntegerPairs::number(const Row &byte, const Expr &position) const {
    if (!in_halves()) {
        return cast<int16_t>(reinterpret<int8_t>(byte(position)));
    }
    const int bytes = elements / 2;
    Expr both = cast<int16_t>(reinterpret<int8_t>(byte(start(position / elements) / 2 + position % bytes)));
    Expr first = (both << (16 - kHalf)) >> (16 - kHalf);
    return select(position % elements < bytes, first, both >> kHalf);
}

Expr IntegerPairs::query(const Row &element, const Expr &position) const {
    if (!in_halves()) {
        return element(position);
    }
    const int bytes = elements / 2;
    Expr step = position / elements;
    Expr at = start(step) + position % bytes * 2 + position % elements / bytes;
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
    if (in_halves()) {
        Expr step = element / elements, within = element - start(step);
        position = step * elements + within % 2 * (elements / 2) + within / 2;
    }
    Expr number = position % (2 * lanes);
    Expr sum =
        position - number + number / kQuarter % 2 * lanes + number / (2 * kQuarter) * kQuarter + number % kQuarter;
    return at(unsafe_promise_clamped(sum, 0, positions() - 1));
}

}  // namespace hattn::generators
