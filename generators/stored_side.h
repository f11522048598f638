// Keys or values in any of the storage types. The kernel is told the type when it is called and brings elements into
// float32 a few rows at a time; there is one kernel for all types, and the types of keys and values are independent.
#pragma once

#include <string>
#include <vector>

#include "Halide.h"
#include "hattn/hattn.h"
#include "integer_steps.h"

namespace hattn::generators {

// Keys that are stored evenly spaced. Chunks are whole multiples of it.
inline constexpr int kGranuleKeys = 16;

inline constexpr int kLineFloats = 16;  // of a cache line

// Elements along D that share a scale, where every key has scales of its own.
inline constexpr int kScaleBlock = 32;

// Types in which keys and values may be stored: those of the interface.
inline constexpr hattn_dtype kStorageTypes[] = {HATTN_FLOAT32, HATTN_FLOAT16, HATTN_BFLOAT16, HATTN_INT8, HATTN_INT4};

// Those that are not quantised; also those of queries and outputs.
inline constexpr hattn_dtype kFloatTypes[] = {HATTN_FLOAT32, HATTN_FLOAT16, HATTN_BFLOAT16};

constexpr int storage_bits(hattn_dtype type) {  // of an element
    return type == HATTN_FLOAT32 ? 32 : type == HATTN_INT8 ? 8 : type == HATTN_INT4 ? 4 : 16;
}

// Element d of key slot + kGranuleKeys * granule, where `granules` says that it is.
Halide::Expr granule_element(const Halide::ImageParam &storage, const Halide::ImageParam &granules, Halide::Expr d,
                             Halide::Expr granule, Halide::Expr slot);

// Zero. Asks for the cache line with the element at an offset. Halide's own prefetch directive takes whole boxes of a
// buffer, which a look-up in a table makes boundless.
Halide::Expr prefetch_line(const Halide::ImageParam &storage, Halide::Expr offset);
Halide::Expr prefetch_address(const Halide::Expr &address);  // likewise
// Of the element at an offset.
Halide::Expr address_of(const Halide::ImageParam &storage, const Halide::Expr &offset);
int line_elements(const Halide::ImageParam &storage);  // of a cache line

struct StoredSide {
    StoredSide(const std::string &side, int lanes);

    int lanes;                 // along d, of the vectors that elements are computed in: at most 16
    Halide::Param<int> type;   // a hattn_dtype, of kStorageTypes
    Halide::Param<int> lines;  // cache lines of a row
    // The same memory as the float32 input, seen as other types; only the one that fits `type` is read.
    Halide::ImageParam halves;  // (d, slot, granule) uint16
    Halide::ImageParam bytes;   // (byte, slot, granule) uint8, strides in bytes whatever the type
    // An integer n stands for n * channel_scales(d) * block_scales(d / kScaleBlock, key). The kernel multiplies the
    // queries, or the outputs, by the first.
    Halide::ImageParam channel_scales;  // (d), stride 0 or 1
    Halide::ImageParam block_scales;    // (block, slot, granule), strides may be 0
    Halide::ImageParam scale_granules;  // (granule) table of block_scales

    std::vector<Halide::Argument> arguments() const;

    // Of quantised storage: whether block_scales have one value, which is common_scale() then, else that is 1.
    Halide::Expr one_scale() const;
    Halide::Expr common_scale() const;
    Halide::Expr block_scale(Halide::Expr block, Halide::Expr granule, Halide::Expr slot) const;

    // In float32, but for channel_scales, where the storage has this type. Vectors of int4 take whole words, of which
    // heads may have `part_words`.
    Halide::Expr element_of(hattn_dtype type, const Halide::ImageParam &floats, const Halide::ImageParam &granules,
                            Halide::Expr d, Halide::Expr granule, Halide::Expr slot, bool part_words = false) const;

    // The same where it may have any: a selection over all types. Only where it is computed in a stage that specialises
    // on `type` (see schedules/stored.h) does a kernel read nothing but what is there.
    Halide::Expr element(const Halide::ImageParam &floats, const Halide::ImageParam &granules, Halide::Expr d,
                         Halide::Expr granule, Halide::Expr slot) const;
};

}  // namespace hattn::generators
