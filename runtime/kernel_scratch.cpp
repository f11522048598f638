// What kernels allocate, as their schedules store it.
#include "kernel_scratch.h"

#include <algorithm>

#include "checked.h"
#include "key_storage.h"
#include "scratch.h"

namespace hattn {

// Weights of every state, and rows of sums.
int64_t merge_scratch_bytes(int64_t rows, int64_t states, int64_t value_dim) {
    return (rows * (states + 4) + value_dim + 64) * static_cast<int64_t>(sizeof(float)) + 1024;
}

namespace {

constexpr int64_t kFloatBytes = sizeof(float);

// Of both families of matrices: registers of sums, and what keys and head elements are rounded up to.
constexpr int64_t kMatrixSide = 16, kMatrixDepth = 32;

// What schedules/x86/matrices.cpp stores, with its gaps. Keys are gone when weights are stored, and scores too when the
// halves of these and what a chunk adds to the state are: these come into the places of those, if they fit
// (ScratchArena). Queries, keys, values and the halves of weights are bfloat16.
int64_t matrix_scratch_floats(const KernelInfo &kernel, int64_t key_dim, int64_t value_dim) {
    constexpr int64_t kJoinedPanels = 4, kSpreadPanels = 9, kFewSets = 128;
    const int64_t rows = kernel.tile.rows, chunk = kernel.tile.keys;
    const int64_t spread = rows % kFewSets == 0 ? rows + kMatrixSide : rows;
    const int64_t key_row = round_up(key_dim, kMatrixDepth);
    const int64_t panels = round_up(ceil_div(value_dim, kMatrixSide), kJoinedPanels);
    const auto beside = [](int64_t floats, int64_t gone) { return floats > gone || 2 * floats <= gone ? floats : 0; };

    const int64_t queries = spread * key_row / 2;
    const int64_t values = panels * kMatrixSide * (chunk + 2) / 2;
    const int64_t keys = chunk * key_row / 2;
    const int64_t scores = spread * chunk;
    const int64_t weights = rows * chunk;
    const int64_t weight_halves = rows * chunk / 2;
    const int64_t state = rows * panels * kMatrixSide;
    const int64_t added = rows * kMatrixSide * round_up(panels, kSpreadPanels);
    // Products by themselves, and two operands.
    const int64_t of_hooks = kernel.hooks != 0 ? spread * chunk + 2 * rows * (chunk + kMatrixSide) : 0;
    const int64_t weights_apart = scores + weights + beside(weight_halves, keys) + beside(added, scores);
    const int64_t weights_for_keys = std::max(scores, weight_halves + added);
    return queries + state + values + keys + std::max(weights_apart, weights_for_keys) + of_hooks + chunk;
}

// What schedules/x86/matrix_bands.cpp stores, and schedules/x86/overlapped_bands.h twice. The state is turned a few
// rows at a time when chunks are done with, which had more. What is added to it is stored where that is not done in
// place, as by stand-ins.
int64_t band_scratch_floats(const KernelInfo &kernel, int64_t key_dim, int64_t value_dim) {
    const int64_t terms = bfloat16_terms(kernel.storage);
    const int64_t rows = kernel.tile.rows, chunk = kernel.tile.keys;
    const int64_t key_row = round_up(key_dim, kMatrixDepth), value_row = round_up(value_dim, kMatrixDepth);

    const int64_t queries = terms * rows * key_row / 2;
    const int64_t state = (rows + kMatrixSide) * value_row;
    const int64_t values = terms * (chunk + kMatrixDepth) * value_row / 2 + chunk;
    const int64_t keys = terms * chunk * key_row / 2;
    // Of a band.
    const int64_t scores = (kernel.hooks != 0 ? 3 : 2) * kBandRows * chunk;
    const int64_t weights = kBandRows * chunk / 2 + 2 * (terms * kBandRows * chunk / 2 + 1);
    const int64_t added = 2 * kBandRows * value_row;
    // Over any type: a key, and values of as many keys as are turned at once, in float32; scales of outputs.
    const int64_t stored =
        takes_any_type(kernel.storage) ? key_row + (kMatrixDepth + 1) * value_row + 8 * kMatrixDepth : 0;
    return queries + state + values + keys + scores + weights + added + stored;
}

}  // namespace

int64_t kernel_scratch_bytes(const KernelInfo &kernel, int64_t key_dim, int64_t value_dim, int64_t keys) {
    constexpr int64_t kLanes = 16;        // widest vector, to which extents are rounded up
    constexpr int64_t kAllocations = 40;  // more than any kernel makes, each rounded up
    constexpr int64_t kRowArrays = 16;    // limits, positions, statistics
    const KernelTile &tile = kernel.tile;
    const int64_t rows = round_up(tile.rows, kLanes);
    const int64_t chunk = round_up(tile.keys > 0 ? tile.keys : keys, kLanes) + kLanes;
    const int64_t chunks = tile.keys > 0 ? ceil_div(keys, tile.keys) + 2 : 2;
    const bool in_bands = goes_in_bands(kernel.storage, tile.rows);
    // Chunk maxima, which bands carry along, and all that is one number a row; and what allocations waste.
    const int64_t of_rows = (in_bands ? 0 : 3 * rows * chunks) + kRowArrays * rows;
    constexpr int64_t kWaste = kAllocations * 2 * static_cast<int64_t>(kScratchAlignment);
    if (multiplies_matrices(kernel.storage)) {
        const int64_t floats = in_bands ? band_scratch_floats(kernel, key_dim, value_dim)
                                        : matrix_scratch_floats(kernel, key_dim, value_dim);
        return (floats + of_rows) * kFloatBytes + kWaste;
    }
    // The first kernel of unfused keeps all scores, as logits and as weights.
    const int64_t kept = kernel.kind == KernelKind::kUnfusedScores ? 2 * rows * chunks * chunk : 0;
    // Query tile and state; logits, weights and two hook operands; value rows of a chunk, and scales of outputs, where
    // keys can be hidden or are stored in another type.
    const bool in_registers = kernel.storage == KeyStorage::kFloat32 || type_of_all(kernel.storage) != HATTN_FLOAT32;
    const bool keeps_values = kernel.hooks != 0 || !in_registers;
    // Rows that are brought into float32 fill whole vectors of bytes with two elements each; of one type of 16 bits, of
    // eight rows, those of a block.
    const hattn_dtype all = type_of_all(kernel.storage);
    const bool is_half = all == HATTN_FLOAT16 || all == HATTN_BFLOAT16;
    const int64_t key_rows = kernel.storage == KeyStorage::kAny || is_half ? tile.key_unroll * (key_dim + 2 * kLanes)
                             : in_registers                                ? 0
                                                                           : chunk * (key_dim + 4 * kLanes) / 2;
    // Queries a second and a third time, as integers of keys are taken, and the state, all in whole steps of 64
    // elements; scales of a chunk's values, and weights as integers, of 16 bits, for each block that has a scale and
    // for all of them.
    const bool is_integer = all == HATTN_INT8 || all == HATTN_INT4;
    const int64_t blocks = value_dim / kScaleBlock + 1;
    const int64_t steps = is_integer ? 2 * rows * (key_dim + 8 * kLanes) + chunk * blocks * ((rows + 3) / 2) : 0;
    // Words of queries four times, of both digits, bytes, or of pairs.
    const bool has_words = kernel.storage == KeyStorage::kInt8Lines || kernel.storage == KeyStorage::kBfloat16Rows;
    const int64_t query_words = has_words ? 2 * rows * key_dim : 0;
    // Queries once more, of tiles whose one vector of rows takes two elements at a time.
    const int64_t query_sides = tile.row_vectors == 1 && kernel.kind != KernelKind::kFlash ? rows * key_dim : 0;
    // Of matrices of bytes: queries, a matrix for each block of elements and half of a byte; values, with gaps; sums of
    // a few keys' scores, and of values.
    const int64_t matrices = multiplies_byte_matrices(kernel.storage)
                                 ? 2 * kMatrixSide * key_dim + value_dim * (chunk + 8 * kLanes) / 4 +
                                       kMatrixSide * (key_dim + value_dim + 2 * kMatrixSide)
                                 : 0;
    // Where the lines of a block's keys and values are.
    const int64_t lines = 2 * tile.key_unroll * (key_dim / kLanes + 1);
    // Where those of a granule are, and which one each pass over a chunk's values asks for with each key.
    const int64_t next_lines = type_of_all(kernel.storage) != HATTN_FLOAT32
                                   ? kGranuleKeys * (key_dim / kLanes + 1) + 2 * chunk * (value_dim / kLanes + 1)
                                   : 0;
    // Chunks are done with when the state is turned, in the place of what they had.
    const int64_t of_chunk = rows * std::max(5 * chunk, value_dim + kLanes);
    const int64_t floats = rows * (key_dim + value_dim + 4 * kLanes) + of_chunk + of_rows +
                           (keeps_values ? (chunk + 2) * (value_dim + 2 * kLanes) : 0) + key_rows + chunk * kLanes +
                           kept + steps + query_words + query_sides + matrices + lines + next_lines;
    return floats * kFloatBytes + kWaste;
}

}  // namespace hattn
