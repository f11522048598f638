#include "number_formats.h"

#include <utility>
#include <vector>

#include "hattn/hattn.h"

namespace hattn::generators {

using namespace Halide;

Expr float16_value(Expr bits) {
    return cast<float>(reinterpret(Float(16), std::move(bits)));
}

Expr bfloat16_value(Expr bits) {
    return reinterpret<float>(cast<uint32_t>(std::move(bits)) << 16);
}

Expr half_value(hattn_dtype type, Expr bits) {
    return type == HATTN_FLOAT16 ? float16_value(std::move(bits)) : bfloat16_value(std::move(bits));
}

Expr quotient(const Expr &d, int by) {
    const auto *clamped = d.as<Internal::Min>();
    return clamped ? min(clamped->a / by * by, clamped->b) / by : d / by;
}

namespace {

Expr word_at(const std::function<Expr(Expr)> &byte, const Expr &first) {
    Expr word = cast<uint32_t>(byte(first));
    for (int n = 1; n < 4; ++n) {
        word = word | (cast<uint32_t>(byte(first + n)) << (8 * n));
    }
    return word;
}

}  // namespace

// By itself, an element takes one byte. Eight lanes along d share a word, sixteen choose from two: words are loaded
// once and shifted by each lane, nothing is gathered. Signs are extended by adding 8 to the four bits, which flips the
// first, and taking it off again; of words, whose upper bits are others', by shifts to the top and back.
Expr int4_value(const std::function<Expr(Expr)> &byte, const Expr &d, int lanes) {
    const auto signed_value = [](const Expr &bits) { return cast<float>(cast<int32_t>(bits ^ Expr(8u)) - 8); };
    if (lanes == 1) {
        return signed_value((cast<uint32_t>(byte(d / 2)) >> cast<uint32_t>(d % 2 * 4)) & Expr(15u));
    }
    Expr word = lanes <= 8
                    ? word_at(byte, quotient(d, 8) * 4)
                    : select(d % 16 < 8, word_at(byte, quotient(d, 16) * 8), word_at(byte, quotient(d, 16) * 8 + 4));
    constexpr int kOthers = 28;
    return cast<float>(reinterpret<int32_t>((word >> cast<uint32_t>(d % 8 * 4)) << kOthers) >> kOthers);
}

Expr typed_value(const Expr &type, Expr floats, const Expr &bits) {
    return select(type == HATTN_FLOAT32, std::move(floats),  //
                  type == HATTN_FLOAT16, float16_value(bits), bfloat16_value(bits));
}

Expr float16_bits(Expr value) {
    return reinterpret<uint16_t>(cast(Float(16), std::move(value)));
}

Expr upper_half(const Expr &number) {
    Expr half = Internal::Call::make(UInt(16), kUpperHalfCall, {number}, Internal::Call::PureExtern);
    return reinterpret(BFloat(16), half);
}

namespace {

// Whose upper half is the nearest bfloat16 number. Of a NaN with all bits set it is none.
Expr rounded_up(const Expr &number) {
    return reinterpret<float>(reinterpret<uint32_t>(number) + Expr(uint32_t{0x8000}));
}

Expr upper(const Expr &number) {
    return reinterpret<float>(reinterpret<uint32_t>(number) & Expr(uint32_t{0xffff0000}));
}

}  // namespace

Expr bfloat16_term(const Expr &value, const Expr &term, int terms) {
    if (terms == 1) {
        return value.type() == BFloat(16) ? value : upper_half(rounded_up(value));
    }
    if (terms == 2) {
        Expr first = rounded_up(value);
        return upper_half(select(term == 0, first, value - upper(first)));
    }
    Expr after_first = value - upper(value);
    Expr rounded = rounded_up(after_first);
    Expr number = select(term == 0, value, term == 1, rounded, after_first - upper(rounded));  // whose upper half it is
    return upper_half(number);
}

Expr weight_term(const Expr &weight, const Expr &term, int terms) {
    if (terms != 2) {
        return bfloat16_term(weight, term, terms);
    }
    return upper_half(rounded_up(select(term == 0, weight, weight - upper(rounded_up(weight)))));
}

std::vector<std::pair<int, int>> products_of_scores(int terms) {
    return terms == 2 ? std::vector<std::pair<int, int>>{{0, 1}, {1, 1}, {1, 0}, {0, 0}} : products_of_values(terms);
}

std::vector<std::pair<int, int>> products_of_values(int terms) {
    switch (terms) {
    case 1:
        return {{0, 0}};
    case 2:
        return {{0, 1}, {0, 0}, {1, 0}};
    default:
        return {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}};
    }
}

TermPair term_pair(const Expr &product, const std::vector<std::pair<int, int>> &products) {
    TermPair pair{products.back().first, products.back().second};
    for (int i = static_cast<int>(products.size()) - 2; i >= 0; --i) {
        pair = {select(product == i, products[i].first, pair.first),
                select(product == i, products[i].second, pair.second)};
    }
    return pair;
}

// Half a unit of the last place is added, less one where the place is even. Integers carry it into the exponent, up to
// infinity. Of a NaN the quiet bit is set instead, lest its payload round away.
Expr bfloat16_bits(Expr value) {
    const auto constant = [](uint32_t number) { return Expr(number); };
    Expr bits = reinterpret<uint32_t>(std::move(value));
    Expr upper = bits >> 16;
    Expr rounded = (bits + constant(0x7fff) + (upper & constant(1))) >> 16;
    Expr is_nan = (bits & constant(0x7fffffff)) > constant(0x7f800000);
    return cast<uint16_t>(select(is_nan, upper | constant(0x40), rounded));
}

Expr half_bits_of_cuda(hattn_dtype type, Expr value) {
    using Internal::Call;
    return type == HATTN_FLOAT16
               ? float16_bits(std::move(value))
               : cast<uint16_t>(Call::make(UInt(32), kBfloat16BitsCall, {std::move(value)}, Call::PureExtern));
}

}  // namespace hattn::generators
