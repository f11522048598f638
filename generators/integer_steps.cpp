#include "integer_steps.h"

#include <vector>

#include "stored_side.h"

namespace hattn::generators {

using namespace Halide;

namespace {

constexpr int kBits = 4;
constexpr int kWordBits = 32;
constexpr float kUnit = 1.0f / (1 << (kWordBits - kBits));  // of the uppermost element

// The elements of so many bits in the upper ones of 32.
Expr word_of(const IntegerSteps::Row &byte, const Expr &first, int bits) {
    std::vector<Expr> bytes;
    for (int i = 0; i < bits / 8; ++i) {
        bytes.push_back(byte(first + i));
    }
    Expr word = cast<uint32_t>(concat_bits(bytes));
    return bits < kWordBits ? word << (kWordBits - bits) : word;
}

}  // namespace

int step_elements(hattn_dtype type) {
    return type == HATTN_INT4 ? 2 * kScaleBlock : type == HATTN_INT8 ? kScaleBlock : kLineFloats;
}

IntegerSteps::IntegerSteps(hattn_dtype type, int lanes, const Expr &dim)
    : RowSteps{type, lanes, dim, step_elements(type)} {}

int IntegerSteps::vectors() const {
    return elements / lanes;
}

Expr IntegerSteps::step_of(const Expr &position) const {
    return position / elements;
}

Expr IntegerSteps::vector_of(const Expr &position) const {
    return position % elements / lanes;
}

Expr IntegerSteps::lane_of(const Expr &position) const {
    return position % lanes;
}

Expr IntegerSteps::scale(const Row &of_block, const Expr &position) const {
    if (!in_words()) {
        return of_block(position / kScaleBlock);
    }
    Expr first = start(step_of(position)) / kScaleBlock;
    return select(lane_of(position) < lanes / 2, of_block(first), of_block(first + 1));
}

Expr IntegerSteps::word(const Row &byte, const Expr &lane, const Expr &step) const {
    return word_of(byte, start(step) / 2 + lane * (vectors() / 2), vectors() * kBits);
}

Expr IntegerSteps::number(const Row &byte, const Words &word, const Expr &position) const {
    if (!in_words()) {
        return cast<float>(reinterpret<int8_t>(byte(position)));
    }
    // A choice, which is known for each vector: Halide does not end where it has to shift by a variable.
    Expr own = word(lane_of(position), step_of(position));
    std::vector<Expr> on_top;
    for (int i = 0; i < vectors(); ++i) {
        on_top.push_back(own << (kBits * i));
    }
    Expr mask = ~Expr((1u << (kWordBits - kBits)) - 1);
    return cast<float>(reinterpret<int32_t>(mux(vector_of(position), on_top) & mask));
}

Expr IntegerSteps::query(const Row &element, const Expr &position) const {
    if (!in_words()) {
        return element(position);
    }
    Expr step = step_of(position);
    Expr within = lane_of(position) * vectors() + (vectors() - 1) - vector_of(position);
    // Those that the last step has again count once.
    Expr again = start(step) + within < step * elements;
    return select(again, 0.0f, element(min(start(step) + within, dim - 1)) * kUnit);
}

Expr IntegerSteps::sum(const Row &at_position, const Expr &element) const {
    if (!in_words()) {
        return at_position(element);
    }
    Expr step = element / elements;
    Expr within = element - start(step);
    Expr vector = (vectors() - 1) - within % vectors();
    Expr position = (step * vectors() + vector) * lanes + within / vectors();
    return at_position(unsafe_promise_clamped(position, 0, positions() - 1)) * kUnit;
}

}  // namespace hattn::generators
