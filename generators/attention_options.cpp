#include "attention_options.h"

#include <algorithm>

#include "schedules/simd/rows_in_lanes.h"
#include "softmax_math.h"

namespace hattn::generators {

using schedules::TargetRow;

namespace {

// StageOptions::fetch_block. With the head in the lanes schedules are made for it. Flash over pairs of bfloat16 puts
// the values of a chunk together before it multiplies, by a loop that no multiplication waits for; decode over them
// asks by stride alone.
int fetch_block(const KernelSpec &spec, const TargetRow &target, bool head_in_lanes, bool strides) {
    const bool in_place_or_blocks = spec.storage == KeyStorage::kFloat32 || spec.storage == KeyStorage::kAny;
    const bool by_line = target.fetch_by_line && in_place_or_blocks &&
                         (spec.kind == KernelKind::kFlash || spec.kind == KernelKind::kSplitKv);
    return head_in_lanes || strides || by_line ? spec.tile.key_unroll : 0;
}

// Keys that decode is ahead of what it reads, with few multiplications for each: 8 KiB of 128 elements. With many, the
// next block is enough.
constexpr int kDecodeLead = kGranuleKeys;

// Where it lies in memory and is found by strides: decisions 0086 and 0102.
int memory_lead(const KernelSpec &spec) {
    constexpr int kMost = 4 * kGranuleKeys;
    return spec.from_memory == FromMemory::kAhead ? std::min(8 * spec.tile.rows, kMost) : kMost;
}

int decode_lead(KeyStorage storage) {
    return kDecodeLead * storage_bits(HATTN_FLOAT32) / storage_bits(type_of_all(storage));
}

// The same with rows in the lanes, where the value loop asks for nothing, lest memory waits for it.
constexpr int kTileLead = 2 * kGranuleKeys;

bool is_one_block(const schedules::Tile &tile) {
    return tile.rows == tile.row_vectors;
}

// Values among them.
bool multiplies_integers(const KernelSpec &spec, const TargetRow &target) {
    const IntegerProducts products = integer_products(spec, target);
    return products != IntegerProducts::kNone && products != IntegerProducts::kScorePairs;
}

constexpr int kRowsOfDigits = 2;  // of int4, for which values are multiplied as bytes: decision 0078

constexpr int kWide = 16, kHalfWide = kWide / 2;  // lanes

// Of which decode goes by row, and asks for what it reads.
constexpr int kFewRows = 2;

// StageOptions::sides: a single vector of rows takes a load for each product else. Two of half as many rows need twice
// as many sums, for which AVX-512 has registers. ARM multiplies by lanes of what is loaded. Pairs of bfloat16 are two
// elements at a time in any case.
bool goes_by_sides(const KernelSpec &spec, const TargetRow &target) {
    return spec.tile.row_vectors == 1 && spec.tile.rows == target.lanes && target.lanes >= kWide &&
           spec.kind != KernelKind::kFlash && spec.storage != KeyStorage::kBfloat16;
}

// Measured on AVX-512 alone: decision 0085. With rows in the lanes each step asks for as many lines as any other.
bool fetches_by_stride(const KernelSpec &spec, const TargetRow &target) {
    const bool even = kLineFloats % spec.tile.key_unroll == 0;
    const bool in_pairs = spec.storage == KeyStorage::kBfloat16 || spec.storage == KeyStorage::kBfloat16Rows;
    return spec.kind == KernelKind::kSplitKv && (spec.storage == KeyStorage::kFloat32 || in_pairs) &&
           target.lanes >= kWide && target.fetch_by_line && even && !fetches_by_row(spec, target);
}

int fetch_lead(const KernelSpec &spec, const TargetRow &target, int block) {
    if (spec.from_memory != FromMemory::kNo && fetches_by_stride(spec, target)) {
        return memory_lead(spec);
    }
    if (has_head_in_lanes(spec, target) || fetches_in_passes(spec, target)) {
        return decode_lead(spec.storage);
    }
    return spec.kind == KernelKind::kSplitKv ? kTileLead : block;
}

// Of kernels for memory, whose keys go one after the other.
int fetch_lead_apart(const KernelSpec &spec, const TargetRow &target, int lead) {
    const int bits = storage_bits(type_of_all(spec.storage));
    if (spec.from_memory == FromMemory::kNo || !fetches_by_row(spec, target) || bits < storage_bits(HATTN_FLOAT16)) {
        return lead;
    }
    return lead * (spec.storage == KeyStorage::kFloat32 || spec.tile.rows > 1 ? 3 : 2);
}

int fetch_pass(const KernelSpec &spec, const TargetRow &target, const AttentionInputs &inputs, bool sides) {
    if (!fetches_in_passes(spec, target)) {
        return 0;
    }
    const int pass = spec.tile.value_unroll * target.lanes;
    return sides               ? schedules::simd::kPassElements
           : inputs.word_pairs ? std::max(pass, inputs.value_pairs().elements)
                               : pass;
}

// Sums of a dot product that stand side by side.
int sides_of(const KernelSpec &spec, const TargetRow &target) {
    const bool sides = !has_head_in_lanes(spec, target) && goes_by_sides(spec, target);
    return goes_by_quads(spec, target) ? kQuad : sides ? 2 : 0;
}

int dim_multiple(const KernelSpec &spec, const TargetRow &target, int sides) {
    return sides == kQuad && spec.storage == KeyStorage::kFloat32 ? kQuad
           : has_head_in_lanes(spec, target)                      ? kLineFloats
           : multiplies_matrices(spec.storage)                    ? kMatrixDepth
           : spec.storage == KeyStorage::kBfloat16 || sides == 2  ? 2
                                                                  : 1;
}

// What is asked for ahead.
void set_fetches(StageOptions &options, const KernelSpec &spec, const TargetRow &target,
                 const AttentionInputs &inputs) {
    const bool head_in_lanes = has_head_in_lanes(spec, target), strides = fetches_by_stride(spec, target);
    options.fetch_block = fetch_block(spec, target, head_in_lanes, strides);
    options.fetch_lead = fetch_lead(spec, target, options.fetch_block);
    options.fetch_lead_apart = fetch_lead_apart(spec, target, options.fetch_lead);
    options.fetch_by_stride = strides;
    options.fetch_by_row = fetches_by_row(spec, target);
    options.fetch_pass = fetch_pass(spec, target, inputs, options.sides == 2);
    // Of other types they are in float32 before and behind the kernel, a tile at a time.
    const bool asks_for_rows =
        options.fetch_block > 0 && spec.kind == KernelKind::kFlash && spec.storage == KeyStorage::kFloat32;
    options.fetch_rows = asks_for_rows ? 2 : 0;
    options.fetch_operands = target.fetch_by_line && !head_in_lanes && spec.tile.keys > 0;
}

// Where keys, values and rows are found.
void set_places(StageOptions &options, const KernelSpec &spec, const TargetRow &target) {
    const bool head_in_lanes = has_head_in_lanes(spec, target);
    options.values_in_place = target.values_in_place && !head_in_lanes && spec.storage == KeyStorage::kFloat32;
    const bool in_place =
        (spec.storage == KeyStorage::kBfloat16Matrices && !options.bands) || spec.storage == KeyStorage::kInt8Matrices;
    options.keys_in_place = in_place && target.stand_in.empty();
    options.place_rows = target.fetch_by_line && !head_in_lanes;
    options.place_keys =
        options.fetch_operands && (spec.storage == KeyStorage::kFloat32 || spec.storage == KeyStorage::kBfloat16);
}

}  // namespace

bool has_head_in_lanes(const KernelSpec &spec, const TargetRow &target) {
    return spec.kind == KernelKind::kSplitKv && target.split_kv.has_head_in_lanes(spec.tile);
}

StageOptions attention_options(const KernelSpec &spec, const TargetRow &target, const AttentionInputs &inputs) {
    const bool head_in_lanes = has_head_in_lanes(spec, target), matrices = multiplies_matrices(spec.storage);
    const int sides = sides_of(spec, target);
    // Of AVX2 those of integers, for which it pays: decision 0107.
    const IntegerProducts products = integer_products(spec, target);
    const bool long_chunks =
        target.integers.products == IntegerProducts::kWordPairs && products != IntegerProducts::kNone;
    StageOptions options{.hooks = spec.hooks,
                         .rows = head_in_lanes ? 0 : spec.tile.rows,
                         .chunk = spec.tile.keys,
                         .dim_multiple = dim_multiple(spec, target, sides),
                         .unit = kLog2E,
                         .words =
                             head_in_lanes && spec.storage == KeyStorage::kAllBfloat16 && target.lanes >= kHalfWide,
                         .present_keys = head_in_lanes && !inputs.any_storage && (target.fetch_by_row || long_chunks),
                         .slot_statistics = head_in_lanes,
                         .integer_products = products,
                         .value_digits = spec.storage == KeyStorage::kInt4Lines && spec.tile.rows <= kRowsOfDigits,
                         .strict = is_strict(spec),
                         .sides = sides,
                         .unseen_step = unseen_step(spec, target),
                         .key_block = spec.tile.key_unroll,
                         .bands = goes_in_bands(spec.storage, spec.tile.rows)};
    set_fetches(options, spec, target, inputs);
    set_places(options, spec, target);
    options.limits_apart = options.fetch_operands;
    options.state_from_first = options.carried_maximum = options.fetch_operands && !matrices;
    return options;
}

StageOptions unfused_score_options(const KernelSpec &spec, const TargetRow &target, bool head_in_lanes) {
    const bool sides = !head_in_lanes && goes_by_sides(spec, target);
    return {.hooks = spec.hooks,
            .chunk = spec.tile.keys,
            .dim_multiple = head_in_lanes ? kLineFloats
                            : sides       ? 2
                                          : 1,
            .unit = kLog2E,
            .fetch_block = head_in_lanes ? spec.tile.key_unroll : 0,
            .fetch_lead = kDecodeLead,
            .fetch_values = false,
            .fetch_by_row = fetches_by_row(spec, target),
            .sides = sides ? 2 : 0};
}

// Of int8 a single row takes as many instructions for values in pairs of words as for values in float32.
IntegerProducts integer_products(const KernelSpec &spec, const TargetRow &target) {
    const IntegerProducts products = target.integers.products;
    if (products == IntegerProducts::kWordPairs && type_of_all(spec.storage) == HATTN_INT8 && spec.tile.rows == 1) {
        return IntegerProducts::kScorePairs;
    }
    return storage_bits(type_of_all(spec.storage)) < 16 ? products : IntegerProducts::kNone;
}

// Where the value loop asks for keys, see decisions 0040 and 0057, or values: with the head in its lanes and one block
// of rows, of 16 bits one or two.
bool fetches_in_passes(const KernelSpec &spec, const TargetRow &target) {
    const bool halves = storage_bits(type_of_all(spec.storage)) == 16 && spec.tile.rows <= kFewRows;
    const bool strides = fetches_by_stride(spec, target);
    return (strides && goes_by_sides(spec, target)) ||
           (is_one_block(spec.tile) &&
            (strides || fetches_by_row(spec, target) || halves || multiplies_integers(spec, target)));
}

// Vectors of four rows would make six copies of all that is multiplied.
int unseen_step(const KernelSpec &spec, const TargetRow &target) {
    constexpr int kFewestRows = 8;
    const int step = std::max(target.lanes, kFewestRows);
    const bool joined = spec.tile.rows == spec.tile.row_vectors * target.lanes && spec.tile.keys > 0;
    const bool apart = spec.kind == KernelKind::kFlash && target.fetch_by_line && !multiplies_matrices(spec.storage);
    return joined && apart && spec.tile.rows > step ? step : 0;
}

// Four rows gain nothing, and integers are multiplied as such: decision 0096.
bool goes_by_quads(const KernelSpec &spec, const TargetRow &target) {
    constexpr int kRows = 8;
    const bool of_floats = spec.storage == KeyStorage::kFloat32 || spec.storage == KeyStorage::kAllFloat16 ||
                           spec.storage == KeyStorage::kAllBfloat16;
    return spec.kind == KernelKind::kSplitKv && of_floats && target.lanes >= kWide && spec.tile.rows == kRows &&
           target.split_kv.has_head_in_lanes(spec.tile) && is_one_block(spec.tile) && spec.tile.key_unroll % kQuad == 0;
}

// Of more rows sums of several keys at a time are better, which share what they load of the queries: decision 0071.
// Lines take four keys at a time in any case.
bool fetches_by_row(const KernelSpec &spec, const TargetRow &target) {
    const bool of_floats = spec.storage == KeyStorage::kFloat32 || spec.storage == KeyStorage::kAllFloat16 ||
                           spec.storage == KeyStorage::kAllBfloat16;
    return target.fetch_by_row && target.split_kv.has_head_in_lanes(spec.tile) &&
           (of_floats || multiplies_integers(spec, target)) && is_one_block(spec.tile) &&
           (spec.tile.rows <= kFewRows || takes_lines(spec.storage));
}

// Prefill computes many weights with few multiplications for each.
bool is_strict(const KernelSpec &spec) {
    return multiplies_terms(spec.storage) || spec.kind == KernelKind::kFlash;
}

}  // namespace hattn::generators
