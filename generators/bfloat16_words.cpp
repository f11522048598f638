#include "bfloat16_words.h"

namespace hattn::generators {

using namespace Halide;

namespace {

constexpr int kHalves = 2;  // of a word

}  // namespace

Expr Bfloat16Words::element(const Expr &position) const {
    return start(position) + position % lanes * kHalves + position / lanes % kHalves;
}

Expr Bfloat16Words::position(const Expr &element) const {
    Expr within = element % elements();
    return element - within + within % kHalves * lanes + within / kHalves;
}

Expr Bfloat16Words::start(const Expr &position) const {
    return position / elements() * elements();
}

int Bfloat16Words::elements() const {
    return kHalves * lanes;
}

Expr Bfloat16Words::number(const std::function<Expr(Expr)> &bits, const Expr &start, const Expr &position) const {
    Expr first = start + position % lanes * kHalves;
    Expr word = concat_bits({bits(first), bits(first + 1)});
    return reinterpret<float>(select(position / lanes % kHalves == 0, word << 16, word & Expr(uint32_t{0xffff0000})));
}

}  // namespace hattn::generators
