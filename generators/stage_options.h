// What a kernel asks of the stages of attention, beside its inputs.
#pragma once

#include "score_hooks.h"

namespace hattn::generators {

inline constexpr int kUsualHead = 128, kNarrowHead = 64, kWideHead = 256;  // elements of most models' heads

// Of integers both products are of them, or that for scores alone, for instructions that sum up as well.
enum class IntegerProducts {
    kNone,        // they are brought into float32
    kPairs,       // sums of two, see IntegerPairs; of lines scores, and of int4 some values, of four, see IntegerDigits
    kScorePairs,  // sums of two, of scores; values are brought into float32
    kWordPairs,   // sums of two; values are interleaved as words of 16 bits, and taken apart then
    kBytes,       // sums of four with signs, see IntegerBytes
};

struct StageOptions {
    HookMask hooks = 0;
    int rows = 0;   // rows of the tile, of which those past the last repeat it; 0: only those that exist are looked at
    int chunk = 0;  // keys per chunk; 0: a single chunk of all keys (scores materialised)
    int dim_multiple = 1;  // the dot product runs over Dk rounded up to this, with zeros in the query
    float unit = 1.0f;     // see ScoreContext
    // With each line of the dot products of a block of so many keys, ask for as many lines as they have in their type,
    // over any storage as they have of 16 bits, of the keys so much further on, and of the block's values. 0: for none.
    int fetch_block = 0;
    int fetch_lead = 0;
    // The same of keys, or values, that lie apart from each other (decision 0121), where a key's lines are asked for with
    // another key.
    int fetch_lead_apart = 0;
    bool fetch_values = true;
    // Of float32 and pairs of bfloat16: where these lines are is found by strides, not in tables, and with rows in the
    // lanes each is asked for with a step through a line of the dot products, not all of them before it. With
    // fetch_pass values are asked for in the value loop, as fetch_by_row has it.
    bool fetch_by_stride = false;
    // Of keys of one type that are multiplied one after the other: ask for the lines of a key with the one fetch_lead
    // before it, and for values likewise in the value loop, with each pass for what it reads.
    bool fetch_by_row = false;
    // Of bfloat16 keys and values, with the head in the lanes: rows are taken as Bfloat16Words.
    bool words = false;
    // Of a chunk compute the keys alone that are there, in whole granules, which lets chunks be long.
    bool present_keys = false;
    // Maxima and sums of a chunk are first those of the keys at each place of their granules, side by side.
    bool slot_statistics = false;
    // Not 0: keys of the next chunk in place of those fetch_lead further, a line of them with each key whose values are
    // multiplied, in each of the passes that the value loop makes over a chunk: one for every so many head elements.
    // By_row and by_stride values in place of keys, those that the pass reads, fetch_lead further.
    int fetch_pass = 0;
    // With each line of the dot products of a block, ask for those of so many rows of inputs.next_query and of the
    // output, or of more, so that few keys ask for all of a tile. With place_rows.
    int fetch_rows = 0;
    bool fetch_operands = false;  // of hooks, of the next chunk with each; of whole tiles
    bool fetch_chunk = false;     // of the second unfused kernel: ask for the values of the next chunk with each
    IntegerProducts integer_products = IntegerProducts::kNone;  // of keys and values that are integers
    bool value_digits = false;  // of lines of int4: values are multiplied as bytes too, and not in pairs
    // With hooks that can hide keys, values of float32 are read in place, for keys that no row sees those of one that a
    // row sees. The tile's rows fill whole vectors.
    bool values_in_place = false;
    // Of matrices of bfloat16 numbers keys are multiplied where they lie, but for chunks that are not whole; of bytes
    // those of whole granules.
    bool keys_in_place = false;
    bool state_from_first = false;  // the state is that of the first chunk, before others are added
    bool strict = false;            // weights by exp2_strict(), see is_strict()
    // Dot products take so many elements of the head at a time, two or four, each of which has sums of its own. Heads
    // are rounded up to them. 0: sums are by rows, or by the lanes of a line.
    int sides = 0;
    bool place_rows = false;  // where each row of the query starts is found once
    // Of float32, and of bfloat16 in pairs: where each key of a chunk starts is found once, and keys are multiplied
    // where they lie, of pairs those of whole groups.
    bool place_keys = false;
    // Limits mask the chunks alone that they cut, in a pass of its own; else scores as they are stored.
    bool limits_apart = false;
    // The first so many rows of a tile, or twice as many and so on, do not multiply what limits hide from all of these:
    // values, and, but for pairs, key_block keys at a time. With limits_apart.
    int unseen_step = 0;
    int key_block = 1;
    // Of bfloat16 matrices: rows go from scores to the state joined_rows at a time.
    bool bands = false;
    // Chunks come one after the other: a row's maximum is that of the statistics as the chunk finds them, and its own.
    // With bands in any case; else not of matrices.
    bool carried_maximum = false;

    // For many small threads that share a tile. All extents are fixed then: heads are padded to `head` elements and
    // every chunk is whole.
    int head = 0;          // 0: as many elements as there are
    int slices = 0;        // parts of a head that a row's state is cut into; 0: none. Of inputs with a matrix_type: a
                           // multiple of kFragmentSlices
    int slice_keys = 1;    // keys of a chunk are dealt to slices in turn, so many at a time; not of matrix_type
    int thread_rows = 2;   // of each of these, in the threads that hold its rows; a multiple of 2
    int key_groups = 0;    // threads of each slice, which have keys of their own; 0: each slice has all keys
    bool of_cuda = false;  // weights and maxima by its instructions; with slices
    // Of fragments: the sum of a chunk's weights is taken before its values are multiplied, so that weights need not be
    // kept; else afterwards, while tensor cores are busy.
    bool sums_first = false;

    // Of a single chunk, for pipelines whose outputs have to come from one loop nest: they are one Func, a Tuple, in
    // which a value of a row is repeated along the other dimension. Nothing is carried from chunk to chunk.
    bool one_loop_nest = false;
};

}  // namespace hattn::generators
