// The stages of attention, written once. Algorithms are compositions of them; schedules know algorithms by these
// members.
//
// Coordinates: r row of the tile (see AttentionInputs), d element of a head, c chunk of keys, k key within its chunk.
// Scores are kept in log2 units where they feed the softmax.
#pragma once

#include <functional>
#include <vector>

#include "Halide.h"
#include "byte_matrix_stages.h"
#include "byte_stages.h"
#include "digit_stages.h"
#include "fetch_stages.h"
#include "integer_stages.h"
#include "kernel_inputs.h"
#include "matrix_stages.h"
#include "row_pair_stages.h"
#include "score_hooks.h"
#include "slice_stages.h"
#include "stage_options.h"

namespace hattn::generators {

// What an instruction for small matrices sums up over: elements of a head, keys of a chunk. Chunks are whole multiples
// of it, heads are padded with zeros.
inline constexpr int kMatrixDepth = 32;
inline constexpr int kMatrixColumns = 16;
// Registers of sums along rows that are computed together, of tiles that have so many.
inline constexpr int kJoinedRows = 2;

// Pairs of elements along D that a loop may multiply in one pass. Queries and keys past the last are zeros.
inline constexpr int kPairGroup = 4;

// Elements of a head that have sums of their own, and keys whose sums are added up side by side: four lanes of 32 bits
// are what a shuffle moves single numbers within.
inline constexpr int kQuad = 4;

// Elements of a head are dealt to slices in turn, so many at a time: what a thread loads at once.
inline constexpr int kSliceVector = 4;

// For schedules/simd/unseen_rows.h: Funcs, and a call (rows of a tile; numbers of its first rows, each with whether
// keys are hidden from these).
inline constexpr const char *kUnseenRows = "unseen_rows", *kUnseenRowsCall = "hattn_unseen_rows";

// Threads of a warp hold the product of two matrices in fragments: a row belongs to four of them, each of which has two
// columns of every eight, and a thread has two rows, eight apart (PTX ISA, "Matrix Fragments for mma.m16n8k16").
inline constexpr int kFragmentColumns = 8, kFragmentVector = 2, kFragmentRows = 16, kFragmentGroups = 8;
inline constexpr int kFragmentSlices = kFragmentColumns / kFragmentVector;
// The slice that a column belongs to, of so many of each; see AttentionStages.
Halide::Expr fragment_slice(const Halide::Expr &column, int columns, int slices);

Halide::Expr granules(Halide::Expr keys);  // that hold so many keys

// The reference that scores are taken relative to. Staying above kMaskedScore makes masked scores weigh exactly 0 even
// in rows that have seen nothing but masked ones.
Halide::Expr reference(Halide::Expr maximum);

// Element d of the value row of a granule's slot. Schedules round blocks of d up, and granules are taken whole: the
// keys in them that no row sees take the value of the nearest one that may be seen, since theirs may be NaN, or not
// there. `likely` gives all but the first and the last granules a loop without the clamps.
Halide::Expr nearest_value(const AttentionInputs &inputs, Halide::Expr d, Halide::Expr slot,
                           const Halide::Expr &granule);

// The slot of that key, and its number.
Halide::Expr nearest_slot(const AttentionInputs &inputs, Halide::Expr slot, const Halide::Expr &granule);
Halide::Expr nearest_key(const AttentionInputs &inputs, const Halide::Expr &key);

// The same, of an element d that there is.
Halide::Expr nearest_element(const AttentionInputs &inputs, Halide::Expr d, Halide::Expr slot,
                             const Halide::Expr &granule);

// A bfloat16 number plus `nothing`, which asks for a line and is zero. Added to its bits: a sum of products that has
// another term is none of pairs.
Halide::Expr asking(const Halide::Expr &number, const Halide::Expr &nothing);

// Element d of a row of 16-bit numbers that has `dim`, or zero: a selection over inputs.row_layout, for stages that
// specialise on it. `element` gives one that there is.
Halide::Expr element_of_row(const AttentionInputs &inputs, const Halide::Expr &d, const Halide::Expr &dim,
                            const std::function<Halide::Expr(Halide::Expr)> &element);

// The size of a scale, lest integers that it multiplies hide that it is no number.
Halide::Expr size_of_scale(const Halide::Expr &scale);

// An element of the output from one of weighted values, which lack the scale of their channel if they are quantised.
Halide::Expr scaled_output(const AttentionInputs &inputs, Halide::Expr value, Halide::Expr d);

// (factor on the weighted values, natural lse) of a row from the sum of its weights, the maximum they are relative to,
// and its sink: one more logit, in natural units, without a value.
Halide::Tuple normalise(Halide::Expr sum, Halide::Expr maximum, Halide::Expr sink);

// From the query tile to the logits: shared by every algorithm.
struct ScoreStages : FetchedKeys, IntegerScores, MatrixScores {
    ScoreStages(const AttentionInputs &inputs, const StageOptions &options);

    Halide::Var r{"r"}, d{"d"}, k{"k"}, c{"c"};
    Halide::Var line{"line"};                // of a row: d / kLineFloats
    Halide::Var side{"side"}, pair{"pair"};  // element 2 * pair + side; in_quads 4 * pair + side
    Halide::Var slot_of_quad{"slot_of_quad"}, quad{"quad"};
    Halide::RDom over_dim;     // 0 <= x < Dk, rounded up to dim_multiple
    Halide::RDom over_signs;   // defined with in_fragments() and no hooks: (0), if the scale is negative
    Halide::RDom over_limits;  // defined with slices and limits_apart: (0), of chunks that limits cut
    Halide::RDom over_lines;   // (element of a line, line) of it; defined with whole_lines
    Halide::Var lane{"lane"}, step{"step"};
    Halide::RDom over_sides;    // (side); in_quads
    Halide::RDom over_steps;    // (step) of IntegerSteps; defined with in_steps
    Halide::RDom over_lanes;    // of a vector; likewise, in_integers, and with values_in_place. With key_groups: slices
    Halide::Expr has_quads;     // heads have kQuad elements at least; in_quads, of float32
    Halide::Expr whole_groups;  // heads are groups of over_pairs, without zeros; with place_keys
    Halide::RDom over_pairs;    // (side, pair of a group, group) of them; defined with in_pairs, but not in_matrices;
                                // (pair) with sides

    Halide::Func row;           // (r) absolute row, clamped to the tile's last one
    Halide::Func head;          // (r) absolute query head, likewise
    Halide::Func position;      // (r) row + position_offset
    Halide::Func first, last;   // (r) visible keys, inclusive; behind Funcs so that bounds stay rectangular
    Halide::Func query_starts;  // (r) of rows of the query; defined with StageOptions::place_rows
    Halide::Func query_tile;    // (r, d) scaled, but not with scales_products(): 16 bits cannot hold that
    // (side, r, pair) in bfloat16, with sides in float32, in_matrices (side, r, pair, term); defined with these and
    // in_pairs. In_bands (side, r, pair, term, band), where r counts the rows of a band
    Halide::Func query_pairs;
    Halide::Func
        query_steps;         // (r, position) what to multiply key_rows by; defined with in_words, in_steps, in_integers
    Halide::Func key_words;  // (lane, step, k, c) defined with IntegerSteps::in_words
    Halide::Func lane_sums;  // (lane, r, k, c) of products; likewise. With key_groups: of a slice's elements
    DigitScores digits;      // defined in_digits
    ByteMatrixScores byte_scores;  // defined in_byte_matrices, as are digits.key_line and what it takes
    RowPairScores row_pairs;       // defined in_rows
    Halide::Func key_starts;       // (k, c) where a key's row starts; defined with StageOptions::place_keys
    int placed_keys = 0;           // of them for each chunk, with those that are asked for ahead
    // (d, k, c) keys in float32, with in_pairs in bfloat16, in_integers int16, or bits of matrix_type
    Halide::Func key_rows;
    Halide::Func unseen_scores;         // (k / key_block, c) unseen_rows(); defined with StageOptions::unseen_step
    Halide::Func side_sums;             // (side, r, k, c) of products with each other element; defined with sides
    Halide::Func quad_sums;             // (slot, r, quad, c) of key 4 * quad + slot's sides; defined in_quads
    Halide::Func dot;                   // (r, k, c) scale * q.k * unit
    Halide::Func logits;                // (r, k, c) after hooks and limits; kMaskedScore where masked
    std::vector<HookTile> hook_tiles;   // (r, k, c) operands of hooks
    std::vector<Halide::Func> per_row;  // (r) operands of hooks

    Halide::Expr row_index() const;                                // row(r), promised to lie in the query
    Halide::Expr head_index() const;                               // head(r), likewise
    Halide::Expr key_index(Halide::Expr k, Halide::Expr c) const;  // absolute, clamped to the last key
    Halide::Expr single_head;                                      // the tile's rows are of one head
    Halide::Expr chunk_keys;                                       // keys per chunk
    Halide::Expr chunk_count;
    int chunk = 0;  // as StageOptions
    bool whole_lines =
        false;  // the head is rounded up to lines, and all blocks of keys but the last few need no clamps
    bool by_row = false, by_stride = false;  // as StageOptions say of what is asked for
    bool present_keys = false;
    bool one_head = false;                  // AttentionInputs::has_one_head(): loops over its elements are unrolled
    std::vector<Halide::Expr> usual_heads;  // else, whether keys have kUsualHead elements, or kNarrowHead, of lines
                                            // kWideHead; loops over these may be unrolled
    bool any_storage = false;
    bool whole_heads = false;                     // heads are multiples of kWholeHead
    hattn_dtype all_type = HATTN_FLOAT32;         // see AttentionInputs
    int steps_of_line = 1;                        // of kLineFloats elements, by_row
    int step_elements = 0;                        // of dot products, one line of float32 by default
    bool in_words = false;                        // StageOptions::words: rows count their positions
    bool in_steps = false;                        // rows count positions, see IntegerSteps
    bool in_integers = false;                     // the same, see IntegerPairs, or, with in_digits, IntegerDigits
    bool values_in_integers = false;              // values too: not with kScorePairs
    bool in_digits = false;                       // scores
    bool in_byte_matrices = false;                // likewise, of matrices; they are not in_digits then
    bool values_in_steps = false;                 // values: in_steps, and with kScorePairs
    bool values_in_digits = false;                // likewise, StageOptions::value_digits
    bool in_bytes = false;                        // and see IntegerBytes
    Halide::Expr one_key_scale, one_value_scale;  // of all keys, of all values; of integers
    int joined_rows = 0;                          // of sums that are computed together; in_matrices
    int sides = 0;                                // as StageOptions
    bool in_quads = false;                        // of four: with the head in the lanes, beside rows
    bool in_pairs = false;                        // products are of bfloat16 numbers, pairs of which lie side by side
    bool in_rows = false;                         // and run along rows, with the head in the lanes
    bool in_matrices = false;                     // and run over whole blocks of kMatrixDepth: multiplies_matrices()
    bool in_bands = false;                        // likewise, as StageOptions
    int bfloat16_terms = 1;                       // that keys, values, queries and weights are a sum of, in_matrices
    hattn_dtype matrix_type = HATTN_FLOAT32;      // else: both products are of matrices, of bits of this type
    bool in_fragments() const {                   // and their results are fragments that the threads of a warp hold
        return matrix_type != HATTN_FLOAT32;
    }
    Halide::Param<int> row_layout;      // used with slices
    int key_groups = 0;                 // as StageOptions
    Exp2 exp2 = exp2_nonpositive;       // of weights
    Halide::Expr exponent_unit = 1.0f;  // of logits; other than 1 with in_fragments(), or in_matrices without hooks
    bool scales_products() const {
        return in_pairs || in_fragments();
    }
    bool scales_exponents() const {  // in their place
        return in_matrices && !is_const_one(exponent_unit);
    }
    // In_bands: whether products are added to the state where it lies, with a rounding for each, and references may lag
    // behind maxima, so that it is seldom multiplied. Not of three terms, whose results are float32's.
    bool adds_in_place() const {
        return in_bands && bfloat16_terms < 3;
    }
    Halide::Param<int> key_type;    // used with any_storage
    Halide::Param<int> query_type;  // used with any_query

protected:
    // (keys, c) 0; says of so many keys whether a tile's first rows see none of them. Defined with
    // StageOptions::unseen_step, to be added to products with these keys.
    Halide::Func unseen_rows(const Halide::Var &keys, int block, const StageOptions &options);

private:
    void fetch_by_line(const StageOptions &options);
    void fetch_by_stride(const StageOptions &options);
    void fetch_by_row(const StageOptions &options);
    void fetch_by_granule(const StageOptions &options);  // in_digits, in_byte_matrices
    void ask_for_rows(const StageOptions &options);
    Halide::Expr logit_factor(const StageOptions &options);
    Halide::Expr step_count() const;
    int lines_of_step(int block) const;                            // that are asked for with one step of a block's keys
    Halide::Expr ask_of_key(int block) const;                      // k, counted in these
    Halide::Expr granule_of_key() const;                           // of key k of chunk c, clamped to the last key's
    Halide::Expr slot_of_key() const;                              // in that, likewise
    Halide::Expr key_of_block(const Halide::Expr &element) const;  // or the element; with slices
    void place_keys(const StageOptions &options);                  // defines key_starts
    Halide::Expr key_of_words() const;                             // at a position d; in_words
    Halide::Expr key_of_steps();                                   // at a position d; with in_steps
    RowSteps::Row key_bytes() const;                               // of key k of chunk c; of integers
    RowSteps::Row key_scales() const;                              // of its blocks; likewise
    Halide::Expr sum_products(const StageOptions &options);        // defines dot, and gives the product
    void multiply_steps(int fetch_block);                          // adds to dot; with in_steps
    Halide::Expr multiply_integers(int fetch_block);               // likewise, in_integers, and gives the product
    Halide::Expr multiply_bytes(int fetch_block);                  // likewise, in_bytes
    void ask_with_steps(int fetch_block, const Halide::Expr &steps);  // defines asked, of integers
    // Sums that each lane has of as many sides as an instruction sums up, in so many vectors of a step; and what of
    // these is added to dot, with the product.
    void begin_integer_sums(const RowSteps &steps, int sides, int vectors);
    Halide::Expr end_integer_sums();
    Halide::Expr multiply_digits();                           // in place of sum_products(), in_digits
    Halide::Expr multiply_byte_matrices(bool keys_in_place);  // likewise, in_byte_matrices
    Halide::Expr number_of_key(bool in_place);                // of these; defines byte_scores.key_numbers
    void take_key_lines();                                    // of both: defines digits.key_line, and what it takes
    // Define digits.quarter_sums.
    void sum_words(const IntegerDigits &of_row, const Halide::Expr &joined);
    void sum_lines(const IntegerDigits &of_row);
    // Defines query_integers, of what queries have at positions.
    void round_query(const RowSteps::Row &at, const Halide::Expr &positions, int largest);
    // The same by digits, in_digits, in_bytes and in_byte_matrices: defines digits.query_digits, of elements at
    // positions.
    void take_query_digits(const RowSteps::Row &element, const Halide::Expr &positions);
    void multiply_slices(int slices, int elements);          // adds to dot; with key_groups
    Halide::Expr key_of_slice(int elements) const;           // with key_groups
    Halide::Expr query_of_row(const Halide::Expr &d) const;  // with in_fragments()
    Halide::Expr key_of_row(const Halide::Expr &d, const Halide::Expr &key) const;
    // 0, for the products of one of the steps that a line of the head is gone through in.
    Halide::Expr ask_with_step(const Halide::Expr &step, int steps, const StageOptions &options);
    Halide::Expr elements_of_key();                            // defines query_pairs, and gives what they multiply
    Halide::Expr add_quads();                                  // defines dot
    Halide::Expr multiply_sides(const StageOptions &options);  // in place of sum_products(), with sides
    void multiply_pairs(const StageOptions &options);          // adds to dot
    Halide::Expr multiply_rows();                              // in place of sum_products(), in_rows
    void multiply_matrices();                                  // likewise
    Halide::Expr keys_fit() const;  // chunk c: matrices can be loaded from where its keys lie

    AttentionInputs inputs_;  // handles, not copies of data
};

// Softmax and values on top: `naive` with a single chunk, `flash` and `split_kv` as an online softmax over chunks
// (Milakov and Gimelshein, 2018; Dao et al., 2022).
struct AttentionStages : ScoreStages, FetchedChunks, IntegerValues, MatrixValues, SliceStages {
    AttentionStages(const AttentionInputs &inputs, const StageOptions &options);

    Halide::Var slice{"slice"}, element{"element"};  // d = element / 4 * 4 * slices + slice * 4 + element % 4
    Halide::RDom over_rows;                          // rows of the tile; defined if a hook can hide keys
    Halide::RDom over_keys;                          // (slot, granule) of the keys of a chunk
    Halide::RDom over_chunks;
    Halide::RDom earlier_chunks;   // chunks up to c
    bool carries_maximum = false;  // StageOptions::bands or carried_maximum

    Halide::Func chunk_max;  // (r, c)
    // With slot_statistics, of the keys at a place of their granules, whose maxima and sums are those of the chunk.
    Halide::RDom over_slots;
    Halide::Func slot_max, slot_sums;  // (slot, r, c)
    // (r, c) a prefix maximum, so that every chunk computes it once; or, carries_maximum, from that of the chunk
    // before, which it may lag behind with adds_in_place()
    Halide::Func running_max;
    Halide::Func statistics_before;  // (r) of undefined values, which stand for statistics as the chunk finds them,
                                     // with the maximum not yet in units of exponents; defined carries_maximum
    Halide::Func weights;            // (r, k, c) 2^(logits - running_max), 0 where masked
    Halide::Func rescale;            // (r, c) 2^(running_max of the chunk before - running_max)
    Halide::Func chunk_sum;          // (r, c) of weights
    Halide::Func pair_sums;          // (r, pair, c) of the weights of two keys; defined in_bands
    Halide::Func key_seen;           // (k, c) 1 if any row of the tile sees the key; defined if a hook can hide keys
    // In its place with values_in_place:
    Halide::RDom over_lane_rows;  // (vector of rows, slot)
    Halide::RDom over_granules;   // of a chunk; used with slot_statistics too
    Halide::Func seen_in_lane;    // (lane, granule, c) a bit for each slot that one of the lane's rows sees
    Halide::Func seen_keys;       // (granule, c) the same of all
    Halide::Func seen_key;        // (c) one of the chunk that some row sees, counted within it, or -1
    Halide::Func value_starts;    // (k, c) where the row starts whose values the key has
    Halide::Var slot{"slot"}, granule{"granule"};  // key = granule * kGranuleKeys + slot, in its chunk
    Halide::Func chunk_value;  // (d, slot, granule, c) value rows; 0 for keys no row sees, whatever they hold
    // With in_pairs, pairs of keys in bfloat16; the sum of weights is taken before they are rounded.
    Halide::RDom over_key_pairs;  // (side, pair, granule) of the keys of a chunk: slot 2 * pair + side; and
                                  // in_integers
    Halide::Func weight_pairs;    // (side, r, pair, c) weights; pairs count through granules. In_bands (side, r, pair,
                                  // term, c)
    Halide::Func weight_halves;   // (k, r, c) weights; in their place in_rows
    // (side, d, pair, c) value rows, likewise. In_rows (side, d, pair, granule, c), and values_in_integers (side, lane,
    // panel, pair, granule, c) of value_integers, in the order of sums.
    Halide::Func value_pairs;
    // With kWordPairs value_integers and value_pairs are words, and these their numbers, of each run in a panel.
    Halide::Func word_numbers;
    int value_step = 0, word_runs = 1;  // IntegerPairs::elements, and runs() of words
    Halide::Var panel{"panel"};    // with in_matrices (side, lane, pair, panel, term, c), of kMatrixColumns elements
    Halide::Expr value_positions;  // of a row; defined with in_words, in_steps, in_integers
    // (lane, r, step, slot, granule, c) weights, each by the scale of a value's elements; with values_in_steps. By
    // itself, lest scales multiply every element.
    Halide::Func scaled_weights;
    Halide::Func value_words;  // (lane, step, slot, granule, c) defined with IntegerSteps::in_words
    // In_digits value_scales are (quarter, k, step, c), integer_output (r, lane, panel, digit, c), and value_words
    // (side, lane, word, part, quad, granule, c) bytes of four keys.
    DigitValues value_digits;
    // In_bytes integer_output is (r, lane, panel, digit, c), and value_words (side, lane, panel, quad, granule, c)
    // int8, of four keys.
    ByteValues value_bytes;
    ByteMatrixValues byte_values;  // defined in_byte_matrices
    Halide::Func unseen_values;    // (granule, c) unseen_rows(); defined with StageOptions::unseen_step
    Halide::Func chunk_output;     // (r, d, c) weights . values
    // By_row: whether values have so many elements, for usual sizes of less than a pass.
    std::vector<Halide::Expr> narrow_values;
    Halide::Expr whole_passes;  // of int8: rows fill these; defined if they are longer than steps
    Halide::Func state;         // (r, d) unnormalised output, updated over chunks
    Halide::Func statistics;    // (r) Tuple(sum, maximum), updated beside it
    Halide::Func normaliser;    // (r) Tuple(factor on state, lse)
    Halide::Func output_scale;  // (d) of weighted values, see scaled_output()
    Halide::Func output;        // (d, r)
    Halide::Func lse;           // (r) natural, with the sink; with leaves_not_finite a NaN, if the state has
                                // what is not finite

    bool leaves_not_finite = false;  // as the kernel's log-sum-exp says
    bool hides_keys = false;
    bool values_in_place = false;   // as StageOptions, with such a hook
    Halide::Param<int> value_type;  // used with any_storage

private:
    // With slices one loop carries everything:
    //   chunk_output (r, element, slice, c)
    //   state        (r, slice) Tuple(maximum, sum of the weights of the slice's own keys, unnormalised output of each
    //                element of the slice)
    //   output       (d, r) Tuple(output, lse), the lse of a row repeated along d
    // running_max, statistics, normaliser and lse are undefined.
    void carry_slices(const AttentionInputs &inputs, const StageOptions &options);
    void take_slice_maxima(const StageOptions &options);  // defines row_max
    void take_key_maxima();                               // likewise, with key_groups
    // With in_fragments(): likewise.
    void take_fragment_maxima(const StageOptions &options);
    // Of both: state_before; and the state, its update, slice_total and row_normaliser.
    void stand_for_state(int elements);
    void carry_state(const AttentionInputs &inputs, int slices, int elements);
    // Of a granule that there is, and of a key that need not be there; the second with key_groups.
    Halide::Expr value_of_row(const AttentionInputs &inputs, const Halide::Expr &granule,
                              const Halide::Expr &key) const;
    Halide::Expr value_of_slice(const AttentionInputs &inputs, const Halide::Expr &granule, const Halide::Expr &key,
                                int elements) const;
    void take_granules(const AttentionInputs &inputs);     // defines over_granules: those that there are
    void take_slot_maxima(const AttentionInputs &inputs);  // of slot_statistics: defines slot_max, and what it takes
    void take_slot_sums();                                 // and slot_sums
    void find_seen_keys(const Halide::Expr &rows);         // of the tile; defines key_seen
    void find_keys_seen_in_fragments(int rows, int thread_rows);  // likewise
    // Defines value_starts, and what it takes.
    void place_values(const AttentionInputs &inputs, int rows);
    // The element with a number of a slice's Tuple.
    static Halide::Expr state_element(const Halide::Tuple &of_slice, const Halide::Expr &which);
    void carry_fragments(const AttentionInputs &inputs, const StageOptions &options);
    // Likewise with key_groups, which chunk_output and state have behind the slice; the maximum is that of all groups,
    // and weights are relative to that of their own chunk. row_normaliser is (r).
    void carry_groups(const AttentionInputs &inputs, const StageOptions &options);
    void carry_rows(const AttentionInputs &inputs, const StageOptions &options);
    // With one_loop_nest: output (d, r) is Tuple(output, lse). running_max, rescale, state, statistics and lse are
    // undefined, and weights are relative to the maximum of the only chunk.
    void finish_single_chunk(const AttentionInputs &inputs, const StageOptions &options);
    Halide::Expr relative_exponent(const Halide::Expr &score, const Halide::Expr &maximum) const;
    Halide::Expr lasting_reference(const Halide::Expr &before, const Halide::Expr &maximum) const;
    Halide::Expr value_of_pair(const Halide::Expr &element, const Halide::Expr &of_chunk) const;
    // Defines chunk_output over (r, d, c), as does multiply_value_matrices().
    void multiply_values(const AttentionInputs &inputs, const StageOptions &options);
    void multiply_value_matrices(const AttentionInputs &inputs);
    void multiply_row_values(const AttentionInputs &inputs, const StageOptions &options);  // likewise, in_rows
    // Defines value_scales, what it takes, and the units of weights.
    void weigh_blocks(const AttentionInputs &inputs, int largest_integer);
    Halide::Expr weight_in_units(const Halide::Expr &key, const Halide::Expr &row, const Halide::Expr &of_block,
                                 const Halide::Expr &chunk) const;  // int16, weights by the scale of values
    void weigh_digits(const AttentionInputs &inputs);               // defines weight_digits, block_digits
    Halide::Expr stored_value_scale(const AttentionInputs &inputs, const Halide::Expr &of_block);  // of key k
    void find_weight_unit(const Halide::Expr &size, int largest_integer);  // of scales, over_scales
    void multiply_value_bytes(const AttentionInputs &inputs, const StageOptions &options);
    void multiply_value_byte_matrices(const AttentionInputs &inputs);
    void pack_weights();                                    // of these: defines byte_values.weight_words
    void interleave_values(const AttentionInputs &inputs);  // and value_numbers
    void multiply_value_digits(const AttentionInputs &inputs, const StageOptions &options);
    // A granule of chunk c, said to be one of those that there are.
    Halide::Expr present_granule(const AttentionInputs &inputs, const Halide::Expr &of_chunk) const;
    void multiply_value_integers(const AttentionInputs &inputs, const StageOptions &options);
    Halide::Expr value_of_words(const AttentionInputs &inputs, const Halide::Expr &granule);  // chunk_value
    Halide::Expr value_of_steps(const AttentionInputs &inputs, const Halide::Expr &granule);  // likewise
    // (r, d) of a slot and granule of keys: what multiplies chunk_value.
    Halide::Expr value_weight(const AttentionInputs &inputs, const Halide::Expr &slot, const Halide::Expr &granule);
    Halide::Expr ask_ahead(const AttentionInputs &inputs, int rows);  // 0, of a pair of keys and a row's band
    void ask_for_quads(const AttentionInputs &inputs);  // in_byte_matrices; defines byte_values.asked_line
    void fetch_next_values(const AttentionInputs &inputs, const StageOptions &options);  // defines asked_next
    void fetch_next_keys(const AttentionInputs &inputs, const StageOptions &options);    // likewise
};

}  // namespace hattn::generators
