#include "convert.h"

#include "kernel_inputs.h"
#include "number_formats.h"

namespace hattn::generators {

using namespace Halide;

namespace {

constexpr int32_t kLargestFloatBits = 0x7f7fffff, kInfinityBits = 0x7f800000;

// The largest integer in use. One less than the most negative has no counterpart.
Expr largest_integer(const Expr &type) {
    return select(type == HATTN_INT8, 127, 7);
}

}  // namespace

Widen::Widen() : type("type"), rows(UInt(16), 3, "rows"), output("widened") {
    Expr bits = rows(d, i, h);
    output(d, i, h) = select(type == HATTN_FLOAT16, float16_value(bits), bfloat16_value(bits));
}

std::vector<Argument> Widen::arguments() const {
    return {type, rows};
}

Narrow::Narrow() : type("type"), rows(Float(32), 3, "rows"), output("narrowed") {
    Expr value = rows(d, i, h);
    output(d, i, h) = select(type == HATTN_FLOAT16, float16_bits(value), bfloat16_bits(value));
}

std::vector<Argument> Narrow::arguments() const {
    return {type, rows};
}

BlockScales::BlockScales()
    : type("type"),
      rows(Float(32), 2, "rows"),
      in_block(0, kScaleBlock, "in_block"),
      largest("largest"),
      output("block_scales") {
    Expr d = min(block * kScaleBlock + in_block, rows.dim(0).extent() - 1);
    // Compared as integers: infinities and NaNs, which are above these, are nothing that arithmetic has to expect.
    largest(block, i) = 0;
    largest(block, i) = max(largest(block, i), reinterpret<int32_t>(rows(d, i)) & 0x7fffffff);
    Expr finite = reinterpret<float>(min(largest(block, i), kLargestFloatBits));
    Expr scale = reinterpret<int32_t>(finite / cast<float>(largest_integer(type)));
    output(block, i) = reinterpret<float>(select(largest(block, i) > kInfinityBits, largest(block, i), scale));
}

std::vector<Argument> BlockScales::arguments() const {
    return {type, rows};
}

Quantize::Quantize()
    : type("type"),
      rows(Float(32), 2, "rows"),
      channel_scales(Float(32), 1, "channel_scales"),
      block_scales(Float(32), 2, "block_scales"),
      integers("integers"),
      output("quantized") {
    allow_any_stride(channel_scales);
    allow_any_stride(block_scales);
    Expr last = rows.dim(0).extent() - 1;
    Expr within = min(d, last);
    Expr scale = channel_scales(within) * block_scales(within / kScaleBlock, i);
    Expr limit = cast<float>(largest_integer(type));
    Expr ratio = round(clamp(rows(within, i) / scale, -limit, limit));
    Expr scale_bits = reinterpret<int32_t>(scale);
    Expr scales = scale_bits > 0 && scale_bits < kInfinityBits;
    integers(d, i) = select(d <= last && scales, cast<int>(ratio), 0);

    Expr pair = (integers(2 * byte, i) & 15) | (integers(2 * byte + 1, i) << 4);
    output(byte, i) = cast<uint8_t>(select(type == HATTN_INT8, integers(byte, i), pair) & 255);
}

std::vector<Argument> Quantize::arguments() const {
    return {type, rows, channel_scales, block_scales};
}

}  // namespace hattn::generators
