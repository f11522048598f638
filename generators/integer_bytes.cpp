#include "integer_bytes.h"

#include <stdexcept>

#include "integer_digits.h"
#include "stored_side.h"

namespace hattn::generators {

using namespace Halide;

IntegerBytes::IntegerBytes(hattn_dtype type, int lanes, const Expr &dim) : RowSteps{type, lanes, dim, kScaleBlock} {
    if (vectors() != kNibbles) {
        throw std::invalid_argument("steps of bytes are two vectors, of four lanes each");
    }
}

int IntegerBytes::numbers_of_vector() const {
    return kSides * lanes;
}

int IntegerBytes::vectors() const {
    return elements / numbers_of_vector();
}

Expr IntegerBytes::element(const Expr &position) const {
    if (type == HATTN_INT8) {
        return position;
    }
    Expr within = position % elements;
    return unsafe_promise_clamped(
        position - within + within % numbers_of_vector() * kNibbles + within / numbers_of_vector(), 0, dim - 1);
}

Expr IntegerBytes::position(const Expr &element) const {
    if (type == HATTN_INT8) {
        return element;
    }
    Expr within = element % elements;
    return unsafe_promise_clamped(element - within + within % kNibbles * numbers_of_vector() + within / kNibbles, 0,
                                  positions() - 1);
}

Expr IntegerBytes::number(const Row &byte, const Expr &step, const Expr &vector, const Expr &within) const {
    if (type == HATTN_INT8) {
        return reinterpret<int8_t>(byte(step * elements + vector * numbers_of_vector() + within));
    }
    const Expr bits = cast<int8_t>(kNibbleBits);
    Expr both = reinterpret<int8_t>(byte(step * numbers_of_vector() + within));
    return select(vector == 0, (both << bits) >> bits, both >> bits);
}

}  // namespace hattn::generators
