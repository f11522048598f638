// Algorithm and schedule of a kernel: build_kernel() of kernel_spec.h.
#include <algorithm>

#include "attention_options.h"
#include "kernel_spec.h"
#include "schedules/arm/bfloat16_dots.h"
#include "schedules/carried_state.h"
#include "schedules/own_slots.h"
#include "schedules/simd/adjacent_sums.h"
#include "schedules/simd/general_ends.h"
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

KernelPipeline build_attention(const KernelSpec &spec, const TargetRow &target) {
    const bool split = spec.kind == KernelKind::kSplitKv, head_in_lanes = has_head_in_lanes(spec, target);
    const bool matrices = multiplies_matrices(spec.storage);
    AttentionInputs inputs(spec.storage, target.lanes);
    inputs.word_pairs = integer_products(spec, target) == IntegerProducts::kWordPairs;
    const StageOptions options = attention_options(spec, target, inputs);
    AttentionStages stages(inputs, options);
    const auto schedule = multiplies_byte_matrices(spec.storage) ? target.byte_matrices.split_kv
                          : head_in_lanes                        ? target.split_kv.head_in_lanes
                          : split                                ? target.split_kv.rows_in_lanes
                          : spec.kind == KernelKind::kNaive      ? target.naive
                          : matrices                             ? target.matrices.flash
                                                                 : target.flash;
    schedule(stages, spec.tile, target.lanes);
    KernelPipeline kernel{Halide::Pipeline({stages.output, stages.lse}), inputs.arguments()};
    if (options.bands) {
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
    UnfusedScores stages(inputs, unfused_score_options(spec, target, head_in_lanes));
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

KernelPipeline build_kernel(const KernelSpec &spec, const TargetRow &target) {
    KernelPipeline kernel = build_stages(spec, target);
    kernel.pipeline.add_custom_lowering_pass(
        new schedules::simd::MaskedRows(Halide::Target(halide_target(spec, target))));
    kernel.pipeline.add_custom_lowering_pass(new schedules::simd::GeneralEnds());
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

Halide::Module link_strictly(const std::string &name, const std::vector<Halide::Module> &modules) {
    Halide::Module linked = Halide::link_modules(name, modules);
    linked.set_any_strict_float(std::ranges::any_of(modules, &Halide::Module::any_strict_float));
    return linked;
}

}  // namespace hattn::generators
