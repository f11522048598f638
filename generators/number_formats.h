// Numbers of 16 bits and fewer, as bits and as float32.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "Halide.h"
#include "hattn/hattn.h"

namespace hattn::generators {

// d / by, of an element that may be clamped to the last of a row: one number for all lanes where it is without
// the clamp. That is of d's multiple of `by`: a minimum of quotients Halide makes a quotient of the minimum again.
Halide::Expr quotient(const Halide::Expr &d, int by);

// Exact, subnormals and infinities included.
Halide::Expr float16_value(Halide::Expr bits);                     // uint16: IEEE 754 binary16
Halide::Expr bfloat16_value(Halide::Expr bits);                    // uint16: the upper half of a float32
Halide::Expr half_value(hattn_dtype type, Halide::Expr bits);      // either of these
inline constexpr const char *kUpperHalfCall = "hattn_upper_half";  // 16 bits, for schedules/simd/upper_halves.h
Halide::Expr upper_half(const Halide::Expr &number);               // a call of it, in bfloat16
// A number as a sum of bfloat16 ones; one of several is a NaN where the number is not finite.
//   One term: the nearest.
//   Two: the nearest, and what is left, cut off at 8 bits. Exact for float16, else to 2^-15.
//   Three: exact but for what is below the smallest normal number. The first is the number cut off at 8 bits, the
//   second the nearest to what is left, the last the rest.
Halide::Expr bfloat16_term(const Halide::Expr &value, const Halide::Expr &term, int terms);

// The same of what arithmetic makes, whose NaNs may be rounded: of two terms the second is the nearest too, to 2^-16.
Halide::Expr weight_term(const Halide::Expr &weight, const Halide::Expr &term, int terms);

// A product of two such sums: products of terms, (first, second) of each, so that from each to the next one term
// changes. Of three terms, and of two where weights are multiplied, those whose numbers add up to less than the terms'
// count: the next ones are 2^-23 of the whole at most, or 2^-16. Of two terms of queries and keys all, since logits may
// be large.
std::vector<std::pair<int, int>> products_of_scores(int terms);
std::vector<std::pair<int, int>> products_of_values(int terms);

struct TermPair {
    Halide::Expr first, second;
};
TermPair term_pair(const Halide::Expr &product, const std::vector<std::pair<int, int>> &products);

// Float32: element d of a row of four-bit integers, the first in the low half of a byte. lanes: of the vectors along d
// in which it is computed, at most 16.
Halide::Expr int4_value(const std::function<Halide::Expr(Halide::Expr)> &byte, const Halide::Expr &d, int lanes);

// Float32: an element of a tensor of queries, which is of one of their types. `floats` and `bits` are the two views of
// it, of which a stage that is specialised on `type` (see schedules/stored.h) reads the one that is there.
Halide::Expr typed_value(const Halide::Expr &type, Halide::Expr floats, const Halide::Expr &bits);

// The nearest number, ties to even; what is too large becomes infinite, a NaN stays one.
Halide::Expr float16_bits(Halide::Expr value);
Halide::Expr bfloat16_bits(Halide::Expr value);
// Either of these by an instruction of CUDA. Of bfloat16 it stands for a function with the result in the lower half,
// vectors of two of which schedules/cuda/warp_matrix.h makes the instruction.
inline constexpr const char *kBfloat16BitsCall = "hattn_bfloat16_bits";
Halide::Expr half_bits_of_cuda(hattn_dtype type, Halide::Expr value);

}  // namespace hattn::generators
