#include "integer_digits.h"

#include "stored_side.h"

namespace hattn::generators {

using namespace Halide;

namespace {

constexpr int kSign = 8;  // of a nibble, in two's complement

}  // namespace

Expr digit_of(const Expr &integer, const Expr &digit) {
    Expr low = cast<int8_t>(integer);
    return select(digit == 0, low, cast<int8_t>((integer + kDigitBase / 2) >> kDigitBits));
}

// The low digit is the lowest byte; the high one is that of what the low one, from which the same is taken, leaves.
Expr digit_of_bits(const Expr &bits, const Expr &digit) {
    constexpr uint32_t kDigitMask = kDigitBase - 1;
    Expr high = bits + Expr(uint32_t{kDigitBase / 2});
    Expr both = (bits & Expr(kDigitMask)) | (high & Expr(kDigitMask << kDigitBits));
    return Internal::Call::make(Int(8), kWordByteCall, {both, digit}, Internal::Call::PureExtern);
}

int IntegerDigits::nibbles() const {
    return type == HATTN_INT4 ? kNibbles : 1;
}

int IntegerDigits::unit() const {
    return type == HATTN_INT4 ? kNibbleUnit : 1;
}

bool IntegerDigits::joins_lines() const {
    return !fills_lines(type, 2 * kWholeLines);
}

Expr IntegerDigits::lines() const {
    return dim / (kLineBytes * nibbles());
}

int IntegerDigits::scaled_lines() const {
    return kScaleBlock / (kQuarterBytes * nibbles());
}

Expr IntegerDigits::block_of_quarter(const Expr &line, const Expr &quarter) const {
    const int lines = scaled_lines();
    return line % lines * (kQuarters / lines) + quarter / lines;
}

Expr IntegerDigits::positions() const {
    return dim;
}

Expr IntegerDigits::position(const Expr &line, const Expr &nibble, const Expr &byte) const {
    return (line * nibbles() + nibble) * kLineBytes + byte;
}

Expr IntegerDigits::element(const Expr &position) const {
    if (type != HATTN_INT4) {
        return position;
    }
    Expr within = position % kLineDigits;
    // Whose bounds Halide would find far outside of the row.
    Expr of_row = position - within + within % kLineBytes * kNibbles + within / kLineBytes;
    return unsafe_promise_clamped(of_row, 0, dim - 1);
}

Expr IntegerDigits::number(const Expr &byte, const Expr &nibble) const {
    if (type != HATTN_INT4) {
        return byte ^ cast<uint8_t>(kByteOffset);
    }
    const Expr upper = cast<uint8_t>(0xff << kNibbleBits), sign = cast<uint8_t>(kSign << kNibbleBits);
    return select(nibble == 0, byte << cast<uint8_t>(kNibbleBits), byte & upper) ^ sign;
}

int IntegerDigits::blocks_of_line() const {
    return kQuarters / scaled_lines();
}

int IntegerDigits::panels_of_line() const {
    return nibbles() * kQuarters;
}

Expr IntegerDigits::signed_number(const Expr &byte, const Expr &nibble) const {
    if (type != HATTN_INT4) {
        return reinterpret<int8_t>(byte);
    }
    const Expr upper = cast<uint8_t>(0xff << kNibbleBits);
    return reinterpret<int8_t>(select(nibble == 0, byte << cast<uint8_t>(kNibbleBits), byte & upper));
}

Expr IntegerDigits::matrix_position(const Expr &element) const {
    Expr of_block = element % kScaleBlock;
    if (type != HATTN_INT4) {
        // Words of a block's quarters: those of both quarters side by side.
        Expr quarter = of_block / kQuarterBytes, word = of_block % kQuarterBytes / kQuarterWords;
        Expr position = element - of_block + (2 * word + quarter) * kQuarterWords + of_block % kQuarterWords;
        return unsafe_promise_clamped(position, 0, dim - 1);
    }
    Expr position = element - of_block + of_block % kNibbles * kQuarterBytes + of_block / kNibbles;
    return unsafe_promise_clamped(position, 0, dim - 1);
}

Expr IntegerDigits::byte_of_half(const Expr &half, const Expr &at) const {
    constexpr int kBytes = kQuarterBytes / 2;
    return at / kBytes * kQuarterBytes + half % 2 * kBytes + at % kBytes;
}

Expr IntegerDigits::place_of_word(const Expr &word, const Expr &at) const {
    return at / kQuarterWords * (2 * kQuarterWords) + word % 2 * kQuarterWords + at % kQuarterWords;
}

Expr IntegerDigits::value(const Expr &byte, const Expr &panel) const {
    const auto nibble = [&](int shift) {
        return (byte & cast<uint8_t>(0x0f << shift)) ^ cast<uint8_t>(kSign << shift);
    };
    return select(panel % kNibbles == 0, nibble(0), nibble(kNibbleBits));
}

Expr IntegerDigits::value_unit(const Expr &panel) const {
    return select(panel % kNibbles == 0, 1.0f, 1.0f / kNibbleUnit);
}

Expr IntegerDigits::value_offset(const Expr &panel) const {
    return select(panel % kNibbles == 0, kSign, kSign << kNibbleBits);
}

Expr IntegerDigits::sum(const RowSteps::Row &at, const Expr &element) const {
    Expr line = element / kLineDigits, byte = element % kLineDigits / kNibbles;
    Expr word = line * (kPanelsOfLine / kPanelsOfWord) + byte / kQuarterWords % (kQuarterBytes / kQuarterWords);
    Expr panel = word * kPanelsOfWord + element % kNibbles;
    Expr lane = byte / kQuarterBytes * kQuarterWords + byte % kQuarterWords;
    return at(unsafe_promise_clamped(panel * lanes + lane, 0, positions() - 1));
}

}  // namespace hattn::generators
