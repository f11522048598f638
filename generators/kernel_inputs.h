// The arguments every attention kernel takes, in one order. A kernel works on one tile: query rows of the heads that
// share one kv head of one batch entry, against one range of keys. Keys count from the first of the range, with the
// offsets shifted to match. They are found through a table of granules, which contiguous storage fills in ascending
// order, pages as they lie, and a ring with wrap-around.
#pragma once

#include <vector>

#include "Halide.h"
#include "bfloat16_words.h"
#include "integer_bytes.h"
#include "integer_digits.h"
#include "integer_pairs.h"
#include "runtime/kernel_table.h"
#include "stored_side.h"

namespace hattn::generators {

// Lifts the unit stride that Halide assumes of the innermost dimension.
void allow_any_stride(Halide::ImageParam &input);
void allow_any_stride(Halide::Func &output);

inline constexpr int kAlignedElements = 8;  // of 16 bits, that a thread loads at once
inline constexpr int kAlignedFloats = 4;    // likewise

struct AttentionInputs {
    AttentionInputs(KeyStorage storage, int lanes);  // lanes: of vectors
    // For devices: all tensors may be of any type that the interface has for them, elements are taken one by one.
    static AttentionInputs of_any_type();
    // The same where keys and values are not quantised. Rows that are aligned can be taken in vectors.
    static AttentionInputs of_any_float();
    // The same arguments where queries, keys and values are all float16 or all bfloat16, as instructions for matrices
    // take them.
    static AttentionInputs of_matrices(hattn_dtype type);

    KeyStorage storage;
    hattn_dtype matrix_type = HATTN_FLOAT32;  // else: elements of queries, keys and values are bits of this type
    bool any_query = false;                   // queries of any type, said at run time, else float32
    Halide::Param<int> query_type;            // a hattn_dtype; used with any_query, as the next
    Halide::ImageParam query_halves;          // (d, i, h) uint16, the same memory as `query`
    // Used with any_query: a RowLayout of runtime/device/unit_record.h, of rows aligned to 16 bytes. Rows of kernels
    // whose keys and values are any_float are whole blocks of kAlignedElements besides.
    Halide::Param<int> row_layout;
    bool any_float = false;     // keys and values are not quantised
    bool any_storage;           // takes_any_type(storage)
    hattn_dtype all_type;       // type_of_all(storage)
    bool whole_heads() const {  // heads are multiples of kWholeHead
        return all_type != HATTN_FLOAT32;
    }
    bool in_lines() const {  // and of kWholeLines
        return takes_lines(storage) || multiplies_byte_matrices(storage);
    }
    bool has_one_head() const {  // of kWholeLines elements, and no other number
        return in_lines() && !fills_lines(all_type, 2 * kWholeLines);
    }
    bool in_steps() const {  // keys and values are taken so: they are integers
        return all_type == HATTN_INT8 || all_type == HATTN_INT4;
    }
    Bfloat16Words words() const {  // of rows that are taken so
        return {stored_key.lanes};
    }
    bool word_pairs = false;  // IntegerProducts::kWordPairs
    Halide::Expr key_bits(const Halide::Expr &d, const Halide::Expr &granule, const Halide::Expr &slot) const;
    Halide::Expr value_bits(const Halide::Expr &d, const Halide::Expr &granule, const Halide::Expr &slot) const;
    IntegerSteps key_steps() const;
    IntegerSteps value_steps() const;
    IntegerPairs key_pairs() const;  // likewise, where pairs of integers are multiplied
    IntegerPairs value_pairs() const;
    IntegerBytes key_signed_bytes() const;  // or bytes that have signs
    IntegerBytes value_signed_bytes() const;
    IntegerDigits key_digits() const;  // or bytes of lines
    IntegerDigits value_digits() const;
    Halide::Expr key_byte(Halide::Expr at, Halide::Expr granule, Halide::Expr slot) const;
    Halide::Expr value_byte(Halide::Expr at, Halide::Expr granule, Halide::Expr slot) const;
    bool has_scales() const {  // of keys and values
        return any_storage || in_steps();
    }
    StoredSide stored_key, stored_value;  // unless storage is kFloat32
    Halide::ImageParam query;             // (d, i, h)
    // Element d of key j is key(d, j % kGranuleKeys, key_granules(j / kGranuleKeys)).
    Halide::ImageParam key;             // (d, slot, granule)
    Halide::ImageParam value;           // (d, slot, granule)
    Halide::ImageParam key_granules;    // (j / kGranuleKeys) int32
    Halide::ImageParam value_granules;  // likewise
    Halide::ImageParam bias;            // (j, i, h), strides may be 0
    Halide::ImageParam mask;            // (j, i, h) uint8, strides may be 0; nonzero: visible
    Halide::ImageParam alibi_slopes;    // (h), stride may be 0
    Halide::ImageParam sinks;           // (h) natural logits; -inf: none
    Halide::ImageParam known_lse;       // (r) natural; read by the probability kernels alone
    Halide::Param<int> key_count;
    Halide::Param<int> key_skip;  // < kGranuleKeys: keys at the start of the range that no row sees
    Halide::Param<float> scale;
    Halide::Param<float> softcap;
    // Row i sees the keys j with i + first_offset <= j <= i + last_offset; |offsets| <= 2^30.
    Halide::Param<int> first_offset, last_offset;
    Halide::Param<int> position_offset;  // position of row i among the keys is i + position_offset
    // What is asked for and not read, in floats behind the query's first: rows of the tile that is next, with the
    // strides of the query, and those of the output, so far apart. Not with any_query.
    Halide::Param<int64_t> next_query, own_output, output_stride;

    std::vector<Halide::Argument> arguments() const;

    // Rows of the tile count through the heads first: row r is (i, h) = (i0 + r / heads, h0 + r % heads).
    Halide::Expr heads() const;
    Halide::Expr rows() const;
    Halide::Expr key_dim() const;
    Halide::Expr value_dim() const;
    bool in_bytes() const {  // rows are asked for
        return any_storage || all_type != HATTN_FLOAT32;
    }
    Halide::Expr key_lines() const;  // cache lines of a row
    Halide::Expr value_lines() const;
    Halide::Expr dense_rows() const;  // of keys and of values lie side by side, in whole lines
    // In float32, or the bits of a matrix_type. With any_query to be computed in a stage of its own, as key_element
    // with any_storage.
    Halide::Expr query_element(Halide::Expr d, Halide::Expr i, Halide::Expr h) const;
    // The same of a row that starts there, in float32; not with any_query.
    Halide::Expr query_start(const Halide::Expr &i, const Halide::Expr &h) const;
    Halide::Expr query_from(const Halide::Expr &start, const Halide::Expr &d) const;
    // In float32, or bfloat16 where storage is that, or the bits of a matrix_type. With any_storage but for the scale
    // of its channel, and to be computed in a stage of its own: see StoredSide::element.
    Halide::Expr key_element(Halide::Expr d, Halide::Expr granule, Halide::Expr slot) const;
    Halide::Expr value_element(Halide::Expr d, Halide::Expr granule, Halide::Expr slot) const;
    // key_element() where storage is bfloat16, for loops that are vectorized under a condition of each lane.
    Halide::Expr bfloat16_key(const Halide::Expr &d, const Halide::Expr &granule, const Halide::Expr &slot) const;
    // Likewise a byte of a key of int8, in the granule that the table gives.
    Halide::Expr key_byte_in(const Halide::Expr &granule, const Halide::Expr &at, const Halide::Expr &slot) const;
    // Element d of the row that starts there, see key_start().
    Halide::Expr key_from(const Halide::Expr &start, const Halide::Expr &d) const;
    Halide::Expr value_from(const Halide::Expr &start, const Halide::Expr &d) const;
    // Of a matrix_type: the bits of a value, which is that of the key where rows are side by side.
    Halide::Expr value_half(const Halide::Expr &d, const Halide::Expr &granule, const Halide::Expr &slot,
                            const Halide::Expr &key) const;
    // With any_float, of a key that is key `slot` of a granule, and a selection over types and layouts.
    Halide::Expr key_float(const Halide::Expr &d, const Halide::Expr &granule, const Halide::Expr &slot,
                           const Halide::Expr &key) const;
    Halide::Expr value_float(const Halide::Expr &d, const Halide::Expr &granule, const Halide::Expr &slot,
                             const Halide::Expr &key) const;
    // For stages that specialise on a type and row_layout: an element d of a key, as in key_float(), from blocks of
    // kAlignedFloats where rows are of such blocks in float32, else `element`. Past the last element one that there is.
    Halide::Expr in_blocks(const StoredSide &side, const Halide::ImageParam &floats, const Halide::ImageParam &granules,
                           const Halide::Expr &d, const Halide::Expr &granule, const Halide::Expr &slot,
                           const Halide::Expr &key, const Halide::Expr &element) const;
    // Where a key's row starts in its storage, and how far behind the first of so many rows of a granule a line of them
    // is, counted through one row after the other; past the last line, that.
    Halide::Expr key_start(const Halide::Expr &key) const;
    Halide::Expr key_start(const Halide::Expr &granule, const Halide::Expr &slot) const;
    Halide::Expr value_start(const Halide::Expr &key) const;
    Halide::Expr key_line(const Halide::Expr &line, int rows = 1) const;
    Halide::Expr key_line_of_slot(const Halide::Expr &slot, const Halide::Expr &line) const;  // of a granule
    Halide::Expr value_line(const Halide::Expr &line, int rows = 1) const;
    Halide::Expr value_line_of_slot(const Halide::Expr &slot, const Halide::Expr &line) const;
    const Halide::ImageParam &asked_keys() const;  // storage that lines are counted in and asked of
    const Halide::ImageParam &asked_values() const;
    // Zero. Asks for a cache line: where rows start, and how far behind.
    Halide::Expr prefetch_key(const Halide::Expr &start, const Halide::Expr &line) const;
    Halide::Expr prefetch_value(const Halide::Expr &start, const Halide::Expr &line) const;
    // Of the scales of a side's blocks: where they start, and a line that is so far behind that of a slot.
    Halide::Expr scales_start(const StoredSide &side, const Halide::Expr &key_index) const;
    Halide::Expr prefetch_scales(const StoredSide &side, const Halide::Expr &start, const Halide::Expr &slot) const;
    Halide::Expr prefetch_query(const Halide::Expr &start, const Halide::Expr &line) const;

private:
    Halide::Expr float_element(const StoredSide &side, const Halide::ImageParam &floats,
                               const Halide::ImageParam &granules, const Halide::Expr &d, const Halide::Expr &granule,
                               const Halide::Expr &slot, const Halide::Expr &key) const;
    Halide::Expr elements(const Halide::ImageParam &side) const;  // of a head
};

}  // namespace hattn::generators
