#include "kernel_spec.h"

#include <algorithm>
#include <iterator>

#include "softmax_math.h"
#include "unfused.h"

namespace hattn::generators {

using schedules::TargetRow;
using schedules::Tile;

namespace {

struct KindRow {
    KernelKind kind;
    const char *name;
};

constexpr KindRow kKinds[] = {
    {KernelKind::kNaive, "naive"},
    {KernelKind::kFlash, "flash"},
    {KernelKind::kSplitKv, "split_kv"},
    {KernelKind::kUnfusedScores, "unfused_scores"},
    {KernelKind::kUnfusedValues, "unfused_values"},
    {KernelKind::kScores, "scores"},
    {KernelKind::kProbabilities, "probabilities"},
    {KernelKind::kMerge, "merge"},
};

// Score outputs are bound by the memory they write; one tile serves: two vectors of rows, 32 keys.
Tile scores_tile(const TargetRow &target) {
    return {2 * target.lanes, 32};
}

}  // namespace

std::vector<Tile> tiles_of(const TargetRow &target, KernelKind kind) {
    switch (kind) {
    case KernelKind::kNaive:
        return target.naive_tiles;
    case KernelKind::kFlash:
        return target.flash_tiles;
    case KernelKind::kSplitKv:
        return target.split_kv_tiles;
    case KernelKind::kUnfusedScores:
        return target.unfused_scores_tiles;
    case KernelKind::kUnfusedValues:
        return target.unfused_values_tiles;
    case KernelKind::kScores:
    case KernelKind::kProbabilities:
        return {scores_tile(target)};
    case KernelKind::kMerge:
        return {Tile{}};
    }
    return {};
}

namespace {

std::vector<HookMask> hook_sets_of(KernelKind kind) {
    if (kind == KernelKind::kMerge) {
        return {0};
    }
    if (kind == KernelKind::kUnfusedValues) {
        return {0, hiding_hooks()};
    }
    return kernel_hook_sets();
}

KernelPipeline build_attention(const KernelSpec &spec, const TargetRow &target) {
    const schedules::AttentionSchedule &schedule = spec.kind == KernelKind::kNaive   ? target.naive
                                                   : spec.kind == KernelKind::kFlash ? target.flash
                                                                                     : target.split_kv;
    AttentionInputs inputs;
    AttentionStages stages(inputs, StageOptions{.hooks = spec.hooks,
                                                .rows = schedule.head_in_lanes ? 0 : spec.tile.rows,
                                                .chunk = spec.tile.keys,
                                                .dim_multiple = schedule.head_in_lanes ? target.lanes : 1,
                                                .unit = kLog2E,
                                                .fetch_ahead = schedule.head_in_lanes});
    schedule.apply(stages, spec.tile, target.lanes);
    return {Halide::Pipeline({stages.output, stages.lse}), inputs.arguments()};
}

KernelPipeline build_unfused_scores(const KernelSpec &spec, const TargetRow &target) {
    const schedules::UnfusedScoresSchedule &schedule = target.unfused_scores;
    const bool head_in_lanes = schedule.head_in_lanes && spec.tile.rows < target.lanes;
    AttentionInputs inputs;
    UnfusedScores stages(inputs, StageOptions{.hooks = spec.hooks,
                                              .chunk = spec.tile.keys,
                                              .dim_multiple = head_in_lanes ? target.lanes : 1,
                                              .unit = kLog2E,
                                              .fetch_ahead = head_in_lanes,
                                              .fetch_values = false});
    (head_in_lanes ? schedule.head_in_lanes : schedule.rows_in_lanes)(stages, spec.tile, target.lanes);
    return {Halide::Pipeline({stages.weights, stages.maximum, stages.sum}), inputs.arguments()};
}

KernelPipeline build_unfused_values(const KernelSpec &spec, const TargetRow &target) {
    UnfusedValueInputs inputs;
    UnfusedValues stages(
        inputs,
        StageOptions{.hooks = spec.hooks, .chunk = spec.tile.keys, .fetch_ahead = target.unfused_values.fetch_ahead});
    target.unfused_values.apply(stages, spec.tile, target.lanes);
    return {Halide::Pipeline({stages.output, stages.lse}), inputs.arguments()};
}

KernelPipeline build_scores(const KernelSpec &spec, const TargetRow &target) {
    AttentionInputs inputs;
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

}  // namespace

const char *kind_name(KernelKind kind) {
    return std::find_if(std::begin(kKinds), std::end(kKinds), [&](const KindRow &row) { return row.kind == kind; })
        ->name;
}

bool parse_kind(const std::string &name, KernelKind *kind) {
    for (const KindRow &row : kKinds) {
        if (name == row.name) {
            *kind = row.kind;
            return true;
        }
    }
    return false;
}

std::string KernelSpec::name(const std::string &target) const {
    std::string text = std::string(kind_name(kind)) + "_" + target;
    std::replace(text.begin(), text.end(), '-', '_');
    if (tile.rows > 0) {
        text += "_r" + std::to_string(tile.rows) + "k" + std::to_string(tile.keys) + "v" +
                std::to_string(tile.row_vectors) + "u" + std::to_string(tile.key_unroll) + "d" +
                std::to_string(tile.value_unroll);
    }
    return text + hook_suffix(hooks);
}

std::vector<KernelSpec> kernels_of(const TargetRow &target, KernelKind kind) {
    std::vector<KernelSpec> specs;
    for (const Tile &tile : tiles_of(target, kind)) {
        for (HookMask hooks : hook_sets_of(kind)) {
            specs.push_back({kind, hooks, tile});
        }
    }
    return specs;
}

void for_each_kind(const std::function<void(KernelKind)> &visit) {
    for (const KindRow &row : kKinds) {
        visit(row.kind);
    }
}

void for_each_kernel(const std::function<void(const KernelSpec &, const TargetRow &)> &visit) {
    for (const TargetRow &row : schedules::targets()) {
        const TargetRow target = schedules::resolve_target(row.name);
        for (const KindRow &kind : kKinds) {
            for (const KernelSpec &spec : kernels_of(target, kind.kind)) {
                visit(spec, target);
            }
        }
    }
}

KernelPipeline build_kernel(const KernelSpec &spec, const TargetRow &target) {
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
    default:
        return build_attention(spec, target);
    }
}

Halide::Module compile_kernel(const KernelSpec &spec, const TargetRow &target) {
    KernelPipeline kernel = build_kernel(spec, target);
    return kernel.pipeline.compile_to_module(kernel.arguments, spec.symbol(target.name),
                                             Halide::Target(target.halide_target));
}

}  // namespace hattn::generators
