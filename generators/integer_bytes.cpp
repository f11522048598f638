#include "integer_bytes.h"

#include "integer_digits.h"
#include "stored_side.h"

namespace hattn::generators {

using namespace Halide;

IntegerBytes::IntegerBytes(hattn_dtype type, int lanes, const Expr &dim) : RowSteps{type, lanes, dim, kScaleBlock} {}

int IntegerBytes::numbers() const {
    return kSides * lanes;
}

int IntegerBytes::vectors() const {
    return elements / numbers();
}

Expr IntegerBytes::element(const Expr &position) const {
    if (type == HATTN_INT8) {
        return position;
    }
    Expr within = position % elements;
    return unsafe_promise_clamped(position - within + within % numbers() * kNibbles + within / numbers(), 0, dim - 1);
}

Expr IntegerBytes::position(const Expr &element) const {
    if (type == HATTN_INT8) {
        return element;
    }
    Expr within = element % elements;
    return unsafe_promise_clamped(element - within + within % kNibbles * numbers() + within / kNibbles, 0,
                                  positions() - 1);
}

Expr IntegerBytes::number(const Row &byte, const Expr &step, const Expr &vector, const Expr &within) const {
    if (type == HATTN_INT8) {
        return reinterpret<int8_t>(byte(step * elements + vector * numbers() + within));
    }
    const Expr bits = cast<int8_t>(kNibbleBits);
    Expr both = reinterpret<int8_t>(byte(step * numbers() + within));
    return select(vector == 0, (both << bits) >> bits, both >> bits);
}

}  // namespace hattn::generators
