// Algorithm and schedule of a kernel: build_kernel() of kernel_spec.h.
#include <algorithm>

#include "kernel_spec.h"
#include "schedules/arm/bfloat16_dots.h"
#include "schedules/carried_state.h"
#include "schedules/own_slots.h"
#include "schedules/simd/adjacent_sums.h"
#include "schedules/simd/joined_copies.h"
#include "schedules/simd/kept_lines.h"
#include "schedules/simd/known_loads.h"
#include "schedules/simd/masked_rows.h"
#include "schedules/simd/maxima_beside_scores.h"
#include "schedules/simd/rows_in_lanes.h"
#include "schedules/simd/turned_stores.h"
#include "schedules/simd/unseen_rows.h"
#include "schedules/simd/upper_halves.h"
#include "schedules/simd/weights_beside_values.h"
#include "schedules/simd/whole_loads.h"
#include "schedules/simd/word_bytes.h"
#include "schedules/x86/matrix_tiles.h"
#include "schedules/x86/overlapped_bands.h"
#include "softmax_math.h"
#include "unfused.h"

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

KernelPipeline build_attention(const KernelSpec &spec, const TargetRow &target) {
    const bool split = spec.kind == KernelKind::kSplitKv;
    const bool head_in_lanes = split && target.split_kv.has_head_in_lanes(spec.tile);
    const bool matrices = multiplies_matrices(spec.storage);
    const bool sides = !head_in_lanes && goes_by_sides(spec, target), quads = goes_by_quads(spec, target);
    const int dim_multiple = quads && spec.storage == KeyStorage::kFloat32    ? kQuad
                             : head_in_lanes                                  ? kLineFloats
                             : matrices                                       ? kMatrixDepth
                             : spec.storage == KeyStorage::kBfloat16 || sides ? 2
                                                                              : 1;
    const int pass = spec.tile.value_unroll * target.lanes;
    const bool in_passes = fetches_in_passes(spec, target), strides = fetches_by_stride(spec, target);
    const int block = fetch_block(spec, target, head_in_lanes, strides);
    // Of AVX2 those of integers, for which it pays: decision 0107.
    const IntegerProducts products = integer_products(spec, target);
    const bool long_chunks =
        target.integers.products == IntegerProducts::kWordPairs && products != IntegerProducts::kNone;
    const bool in_place = target.values_in_place && !head_in_lanes && spec.storage == KeyStorage::kFloat32;
    const bool bands = goes_in_bands(spec.storage, spec.tile.rows);
    const bool keys_in_place =
        ((spec.storage == KeyStorage::kBfloat16Matrices && !bands) || spec.storage == KeyStorage::kInt8Matrices) &&
        target.stand_in.empty();
    const bool fetches_operands = target.fetch_by_line && !head_in_lanes && spec.tile.keys > 0;
    const bool place_keys =
        fetches_operands && (spec.storage == KeyStorage::kFloat32 || spec.storage == KeyStorage::kBfloat16);
    // Of other types they are in float32 before and behind the kernel, a tile at a time.
    const bool asks_for_rows = block > 0 && spec.kind == KernelKind::kFlash && spec.storage == KeyStorage::kFloat32;
    AttentionInputs inputs(spec.storage, target.lanes);
    inputs.word_pairs = products == IntegerProducts::kWordPairs;
    AttentionStages stages(
        inputs,
        StageOptions{.hooks = spec.hooks,
                     .rows = head_in_lanes ? 0 : spec.tile.rows,
                     .chunk = spec.tile.keys,
                     .dim_multiple = dim_multiple,
                     .unit = kLog2E,
                     .fetch_block = block,
                     .fetch_lead = spec.from_memory != FromMemory::kNo && strides ? memory_lead(spec)
                                   : head_in_lanes || in_passes                   ? decode_lead(spec.storage)
                                   : split                                        ? kTileLead
                                                                                  : block,
                     .fetch_by_stride = strides,
                     .fetch_by_row = fetches_by_row(spec, target),
                     .words = head_in_lanes && spec.storage == KeyStorage::kAllBfloat16 && target.lanes >= kHalfWide,
                     .present_keys = head_in_lanes && !inputs.any_storage && (target.fetch_by_row || long_chunks),
                     .slot_statistics = head_in_lanes,
                     .fetch_pass = !in_passes          ? 0
                                   : sides             ? schedules::simd::kPassElements
                                   : inputs.word_pairs ? std::max(pass, inputs.value_pairs().elements)
                                                       : pass,
                     .fetch_rows = asks_for_rows ? 2 : 0,
                     .fetch_operands = fetches_operands,
                     .integer_products = products,
                     .value_digits = spec.storage == KeyStorage::kInt4Lines && spec.tile.rows <= kRowsOfDigits,
                     .values_in_place = in_place,
                     .keys_in_place = keys_in_place,
                     .state_from_first = fetches_operands && !matrices,
                     .strict = is_strict(spec),
                     .sides = quads   ? kQuad
                              : sides ? 2
                                      : 0,
                     .place_rows = target.fetch_by_line && !head_in_lanes,
                     .place_keys = place_keys,
                     .limits_apart = fetches_operands,
                     .unseen_step = unseen_step(spec, target),
                     .key_block = spec.tile.key_unroll,
                     .bands = bands,
                     .carried_maximum = fetches_operands && !matrices});
    const auto schedule = multiplies_byte_matrices(spec.storage) ? target.byte_matrices.split_kv
                          : head_in_lanes                        ? target.split_kv.head_in_lanes
                          : split                                ? target.split_kv.rows_in_lanes
                          : spec.kind == KernelKind::kNaive      ? target.naive
                          : matrices                             ? target.matrices.flash
                                                                 : target.flash;
    schedule(stages, spec.tile, target.lanes);
    KernelPipeline kernel{Halide::Pipeline({stages.output, stages.lse}), inputs.arguments()};
    if (bands) {
        kernel.bands = {.weights = stages.weight_pairs.name(),
                        .pair_sums = stages.pair_sums.name(),
                        .unseen = stages.unseen_blocks.name(),
                        .rescale = stages.rescale.name(),
                        .state = stages.state.name(),
                        .adds_in_place = stages.adds_in_place(),
                        .filled = stages.filled_bands};
    }
    if (target.softmax_beside_products && spec.kind == KernelKind::kFlash && !matrices) {
        kernel.scored = {.logits = stages.logits.name(), .chunk_max = stages.chunk_max.name()};
        if (spec.storage == KeyStorage::kFloat32) {
            kernel.weighed = {.weights = stages.weights.name(),
                              .chunk_sum = stages.chunk_sum.name(),
                              .chunk_output = stages.chunk_output.name()};
        }
    }
    if (stages.statistics_before.defined()) {
        kernel.pipeline.add_custom_lowering_pass(
            new schedules::CarriedState({stages.statistics_before.name(), stages.statistics.name()}));
    }
    return kernel;
}

KernelPipeline build_unfused_scores(const KernelSpec &spec, const TargetRow &target) {
    const schedules::UnfusedScoresSchedule &schedule = target.unfused_scores;
    const bool head_in_lanes = schedule.head_in_lanes && spec.tile.rows < target.lanes;
    AttentionInputs inputs(spec.storage, target.lanes);
    const bool sides = !head_in_lanes && goes_by_sides(spec, target);
    UnfusedScores stages(inputs, StageOptions{.hooks = spec.hooks,
                                              .chunk = spec.tile.keys,
                                              .dim_multiple = head_in_lanes ? kLineFloats
                                                              : sides       ? 2
                                                                            : 1,
                                              .unit = kLog2E,
                                              .fetch_block = head_in_lanes ? spec.tile.key_unroll : 0,
                                              .fetch_lead = kDecodeLead,
                                              .fetch_values = false,
                                              .fetch_by_row = fetches_by_row(spec, target),
                                              .sides = sides ? 2 : 0});
    (head_in_lanes ? schedule.head_in_lanes : schedule.rows_in_lanes)(stages, spec.tile, target.lanes);
    return {Halide::Pipeline({stages.weights, stages.maximum, stages.sum}), inputs.arguments()};
}

KernelPipeline build_unfused_values(const KernelSpec &spec, const TargetRow &target) {
    UnfusedValueInputs inputs(AttentionInputs(spec.storage, target.lanes));
    UnfusedValues stages(
        inputs,
        StageOptions{.hooks = spec.hooks, .chunk = spec.tile.keys, .fetch_chunk = target.unfused_values.fetch_chunk});
    target.unfused_values.apply(stages, spec.tile, target.lanes);
    return {Halide::Pipeline({stages.output, stages.lse}), inputs.arguments()};
}

KernelPipeline build_scores(const KernelSpec &spec, const TargetRow &target) {
    AttentionInputs inputs(spec.storage, target.lanes);
    ScoreOutput stages(inputs, spec.hooks, spec.kind == KernelKind::kProbabilities);
    target.scores(stages, spec.tile, target.lanes);
    return {Halide::Pipeline(stages.output), inputs.arguments()};
}

KernelPipeline build_merge(const KernelSpec &spec, const TargetRow &target) {
    MergeInputs inputs;
    MergeStages stages(inputs);
    target.merge(stages, spec.tile, target.lanes);
    return {Halide::Pipeline({stages.output, stages.lse}), inputs.arguments()};
}

template<typename Stages>
KernelPipeline build_conversion(void (*schedule)(Stages &, int lanes), const TargetRow &target) {
    Stages stages;
    schedule(stages, target.lanes);
    return {Halide::Pipeline(stages.output), stages.arguments()};
}

KernelPipeline build_stages(const KernelSpec &spec, const TargetRow &target) {
    switch (spec.kind) {
    case KernelKind::kMerge:
        return build_merge(spec, target);
    case KernelKind::kUnfusedScores:
        return build_unfused_scores(spec, target);
    case KernelKind::kUnfusedValues:
        return build_unfused_values(spec, target);
    case KernelKind::kScores:
    case KernelKind::kProbabilities:
        return build_scores(spec, target);
    case KernelKind::kWiden:
        return build_conversion(target.convert.widen, target);
    case KernelKind::kNarrow:
        return build_conversion(target.convert.narrow, target);
    case KernelKind::kBlockScales:
        return build_conversion(target.convert.block_scales, target);
    case KernelKind::kQuantize:
        return build_conversion(target.convert.quantize, target);
    default:
        return build_attention(spec, target);
    }
}

}  // namespace

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

KernelPipeline build_kernel(const KernelSpec &spec, const TargetRow &target) {
    KernelPipeline kernel = build_stages(spec, target);
    kernel.pipeline.add_custom_lowering_pass(
        new schedules::simd::MaskedRows(Halide::Target(halide_target(spec, target))));
    kernel.pipeline.add_custom_lowering_pass(new schedules::simd::UnseenRows());
    kernel.pipeline.add_custom_lowering_pass(
        new schedules::simd::KeptLines(spec.from_memory != FromMemory::kSecondLevel));
    kernel.pipeline.add_custom_lowering_pass(new schedules::simd::TurnedStores());
    kernel.pipeline.add_custom_lowering_pass(new schedules::simd::AdjacentSums());
    kernel.pipeline.add_custom_lowering_pass(new schedules::simd::UpperHalves());
    kernel.pipeline.add_custom_lowering_pass(
        new schedules::simd::WordBytes(Halide::Target(halide_target(spec, target))));
    if (integer_products(spec, target) == IntegerProducts::kWordPairs) {
        kernel.pipeline.add_custom_lowering_pass(new schedules::simd::KnownLoads());
    }
    kernel.pipeline.add_custom_lowering_pass(new schedules::simd::WholeLoads());
    kernel.pipeline.add_custom_lowering_pass(new schedules::simd::JoinedCopies());
    if (spec.storage == KeyStorage::kBfloat16 && target.bfloat16.by_proxy) {
        kernel.pipeline.add_custom_lowering_pass(new schedules::arm::Bfloat16Dots());
    }
    const bool has_tiles = multiplies_matrices(spec.storage) || multiplies_byte_matrices(spec.storage);
    if (has_tiles && target.stand_in.empty()) {
        kernel.pipeline.add_custom_lowering_pass(new schedules::x86::MatrixTiles());
        kernel.pipeline.add_custom_lowering_pass(new schedules::x86::OverlappedBands(kernel.bands));
    }
    kernel.pipeline.add_custom_lowering_pass(new schedules::OwnSlots());
    if (!kernel.scored.logits.empty()) {
        kernel.pipeline.add_custom_lowering_pass(new schedules::simd::MaximaBesideScores(kernel.scored));
    }
    if (!kernel.weighed.weights.empty()) {
        kernel.pipeline.add_custom_lowering_pass(new schedules::simd::WeightsBesideValues(kernel.weighed));
    }
    return kernel;
}

// Without metadata: the runtime knows what kernels take, and relocations of it are a twelfth of the library.
Halide::Module KernelPipeline::compile(const std::string &symbol, const char *target) {
    return pipeline.compile_to_module(arguments, symbol, Halide::Target(target), Halide::LinkageType::ExternalPlusArgv);
}

Halide::Module compile_kernel(const KernelSpec &spec, const TargetRow &target) {
    return build_kernel(spec, target).compile(spec.symbol(target.name), halide_target(spec, target));
}

// Prefill computes many weights with few multiplications for each.
bool is_strict(const KernelSpec &spec) {
    return multiplies_terms(spec.storage) || spec.kind == KernelKind::kFlash;
}

Halide::Module link_strictly(const std::string &name, const std::vector<Halide::Module> &modules) {
    Halide::Module linked = Halide::link_modules(name, modules);
    linked.set_any_strict_float(std::ranges::any_of(modules, &Halide::Module::any_strict_float));
    return linked;
}

}  // namespace hattn::generators
