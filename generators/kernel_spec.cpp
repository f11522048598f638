#include "kernel_spec.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "softmax_math.h"
#include "unfused.h"

namespace hattn::generators {

using schedules::TargetRow;
using schedules::Tile;

namespace {

constexpr KernelFamily kFamilies[] = {
    {KernelKind::kNaive, "naive"},
    {KernelKind::kFlash, "flash"},
    {KernelKind::kSplitKv, "split_kv"},
    {KernelKind::kUnfusedScores, "unfused_scores"},
    {KernelKind::kUnfusedValues, "unfused_values"},
    {KernelKind::kScores, "scores"},
    {KernelKind::kProbabilities, "probabilities"},
    {KernelKind::kMerge, "merge"},
    {KernelKind::kNaive, "stored_naive", KeyStorage::kAny},
    {KernelKind::kFlash, "stored_flash", KeyStorage::kAny},
    {KernelKind::kSplitKv, "stored_split_kv", KeyStorage::kAny},
    {KernelKind::kUnfusedScores, "stored_unfused_scores", KeyStorage::kAny},
    {KernelKind::kUnfusedValues, "stored_unfused_values", KeyStorage::kAny},
    {KernelKind::kScores, "stored_scores", KeyStorage::kAny},
    {KernelKind::kProbabilities, "stored_probabilities", KeyStorage::kAny},
    {KernelKind::kFlash, "bfloat16_flash", KeyStorage::kBfloat16},
    {KernelKind::kFlash, "amx_flash", KeyStorage::kBfloat16Matrices},
    {KernelKind::kWiden, "widen"},
    {KernelKind::kNarrow, "narrow"},
    {KernelKind::kBlockScales, "block_scales"},
    {KernelKind::kQuantize, "quantize"},
    {KernelKind::kAppend, "append"},
};

const char *family_name(KernelKind kind, KeyStorage storage) {
    return std::find_if(std::begin(kFamilies), std::end(kFamilies),
                        [&](const KernelFamily &row) { return row.kind == kind && row.storage == storage; })
        ->name;
}

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
    case KernelKind::kAppend:
        return {};  // of devices alone
    default:
        return {Tile{}};
    }
}

std::vector<Tile> tiles_of(const TargetRow &target, const KernelFamily &family) {
    // Unfused runs where it is asked for only, so that over other storage than float32 a small and a large tile serve.
    static constexpr int kStoredUnfusedRows[] = {8, 32};
    if (family.storage == KeyStorage::kBfloat16) {
        return target.bfloat16.flash_tiles;
    }
    if (family.storage == KeyStorage::kBfloat16Matrices) {
        return target.matrices.flash_tiles;
    }
    const bool stored_split = family.storage == KeyStorage::kAny && family.kind == KernelKind::kSplitKv;
    std::vector<Tile> tiles = stored_split ? target.stored_split_kv_tiles : tiles_of(target, family.kind);
    if (family.storage == KeyStorage::kAny &&
        (family.kind == KernelKind::kUnfusedScores || family.kind == KernelKind::kUnfusedValues)) {
        std::erase_if(tiles, [](const Tile &tile) {
            return std::find(std::begin(kStoredUnfusedRows), std::end(kStoredUnfusedRows), tile.rows) ==
                   std::end(kStoredUnfusedRows);
        });
    }
    return tiles;
}

namespace {

std::vector<HookMask> hook_sets_of(const KernelFamily &family) {
    switch (family.kind) {
    case KernelKind::kMerge:
    case KernelKind::kWiden:
    case KernelKind::kNarrow:
    case KernelKind::kBlockScales:
    case KernelKind::kQuantize:
        return {0};
    case KernelKind::kUnfusedValues:
        return {0, hiding_hooks()};
    default:
        break;
    }
    std::vector<HookMask> sets = kernel_hook_sets();
    const bool stored = family.storage != KeyStorage::kFloat32 && family.kind != KernelKind::kScores;
    if (stored || family.kind == KernelKind::kUnfusedScores) {
        // One hook costs little beside conversion, and unfused runs where it is asked for only: the sets of several
        // serve it. Capped scores need theirs alone.
        std::erase_if(sets, [](HookMask set) { return std::popcount(set) == 1; });
    }
    return sets;
}

// StageOptions::fetch_block. Flash over other types than float32 brings a chunk into it before it multiplies, by loops
// that no multiplication waits for: there it does not pay.
int fetch_block(const KernelSpec &spec, const TargetRow &target) {
    const bool flash = spec.kind == KernelKind::kFlash && spec.storage == KeyStorage::kFloat32;
    return target.fetch_by_line && (flash || spec.kind == KernelKind::kSplitKv) ? spec.tile.key_unroll : 0;
}

// Keys that decode is ahead of what it reads, with few multiplications for each. With many, the next block is enough.
constexpr int kDecodeLead = kGranuleKeys;

KernelPipeline build_attention(const KernelSpec &spec, const TargetRow &target) {
    const bool split = spec.kind == KernelKind::kSplitKv;
    const bool head_in_lanes = split && target.split_kv.has_head_in_lanes(spec.tile);
    const bool matrices = spec.storage == KeyStorage::kBfloat16Matrices;
    const int block = fetch_block(spec, target);
    const int dim_multiple = head_in_lanes                           ? kLineFloats
                             : matrices                              ? kMatrixDepth
                             : spec.storage == KeyStorage::kBfloat16 ? 2
                                                                     : 1;
    AttentionInputs inputs(spec.storage, target.lanes);
    AttentionStages stages(inputs, StageOptions{.hooks = spec.hooks,
                                                .rows = head_in_lanes ? 0 : spec.tile.rows,
                                                .chunk = spec.tile.keys,
                                                .dim_multiple = dim_multiple,
                                                .unit = kLog2E,
                                                .fetch_block = block,
                                                .fetch_lead = head_in_lanes ? kDecodeLead : block});
    const auto schedule = head_in_lanes                     ? target.split_kv.head_in_lanes
                          : split                           ? target.split_kv.rows_in_lanes
                          : spec.kind == KernelKind::kNaive ? target.naive
                          : matrices                        ? target.matrices.flash
                                                            : target.flash;
    schedule(stages, spec.tile, target.lanes);
    return {Halide::Pipeline({stages.output, stages.lse}), inputs.arguments()};
}

KernelPipeline build_unfused_scores(const KernelSpec &spec, const TargetRow &target) {
    const schedules::UnfusedScoresSchedule &schedule = target.unfused_scores;
    const bool head_in_lanes = schedule.head_in_lanes && spec.tile.rows < target.lanes;
    AttentionInputs inputs(spec.storage, target.lanes);
    UnfusedScores stages(inputs, StageOptions{.hooks = spec.hooks,
                                              .chunk = spec.tile.keys,
                                              .dim_multiple = head_in_lanes ? kLineFloats : 1,
                                              .unit = kLog2E,
                                              .fetch_block = head_in_lanes ? spec.tile.key_unroll : 0,
                                              .fetch_lead = kDecodeLead,
                                              .fetch_values = false});
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

}  // namespace

const KernelFamily *find_family(const std::string &name) {
    for (const KernelFamily &family : kFamilies) {
        if (name == family.name) {
            return &family;
        }
    }
    return nullptr;
}

const char *kind_name(KernelKind kind) {
    return family_name(kind, KeyStorage::kFloat32);
}

std::string KernelSpec::name(const std::string &target) const {
    std::string text = std::string(family_name(kind, storage)) + "_" + target;
    std::replace(text.begin(), text.end(), '-', '_');
    if (tile.rows > 0) {
        text += "_r" + std::to_string(tile.rows) + "k" + std::to_string(tile.keys) + "v" +
                std::to_string(tile.row_vectors) + "u" + std::to_string(tile.key_unroll) + "d" +
                std::to_string(tile.value_unroll);
    }
    return text + hook_suffix(hooks);
}

std::vector<KernelSpec> kernels_of(const TargetRow &target, const KernelFamily &family) {
    std::vector<KernelSpec> specs;
    for (const Tile &tile : tiles_of(target, family)) {
        for (HookMask hooks : hook_sets_of(family)) {
            specs.push_back({family.kind, family.storage, hooks, tile});
        }
    }
    return specs;
}

void for_each_family(const std::function<void(const KernelFamily &)> &visit) {
    for (const KernelFamily &family : kFamilies) {
        visit(family);
    }
}

void for_each_kernel(const schedules::Architecture &architecture,
                     const std::function<void(const KernelSpec &, const TargetRow &)> &visit) {
    for (const TargetRow &row : architecture.targets) {
        const TargetRow target = schedules::resolve_target(architecture, row.name);
        for (const KernelFamily &family : kFamilies) {
            for (const KernelSpec &spec : kernels_of(target, family)) {
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

Halide::Module KernelPipeline::compile(const std::string &symbol, const char *target) {
    return pipeline.compile_to_module(arguments, symbol, Halide::Target(target));
}

namespace {

const char *of_storage(KeyStorage storage, const char *pairs, const char *matrices, const char *others) {
    return storage == KeyStorage::kBfloat16 ? pairs : storage == KeyStorage::kBfloat16Matrices ? matrices : others;
}

}  // namespace

const char *halide_target(const KernelSpec &spec, const TargetRow &target) {
    return of_storage(spec.storage, target.bfloat16.halide_target, target.matrices.halide_target, target.halide_target);
}

const char *further_cpu_features(const KernelSpec &spec, const TargetRow &target) {
    return of_storage(spec.storage, target.bfloat16.cpu_features, target.matrices.cpu_features, "");
}

bool is_untested(const KernelSpec &spec) {
    return spec.storage == KeyStorage::kBfloat16Matrices;
}

Halide::Module compile_kernel(const KernelSpec &spec, const TargetRow &target) {
    return build_kernel(spec, target).compile(spec.symbol(target.name), halide_target(spec, target));
}

}  // namespace hattn::generators
