#include "device_kernels.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "device_launch.h"
#include "device_plain_kernels.h"
#include "merge.h"
#include "runtime/device/loaded_code.h"
#include "schedules/cuda/attention.h"
#include "schedules/cuda/early_tiles.h"
#include "schedules/cuda/lane_exchange.h"
#include "schedules/cuda/matrix_calls.h"
#include "schedules/cuda/thin_barriers.h"
#include "schedules/cuda/warp_matrix.h"
#include "schedules/cuda/wide_rows.h"
#include "schedules/gpu/aligned_blocks.h"
#include "schedules/gpu/attention.h"
#include "schedules/gpu/carried_state.h"
#include "schedules/gpu/loaded_code.h"
#include "schedules/gpu/merge.h"
#include "schedules/gpu/thread_registers.h"
#include "schedules/gpu/typed_output.h"
#include "schedules/gpu/unit_launch.h"
#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;
using schedules::gpu::DeviceUnits;
using schedules::gpu::OutputStorage;
using schedules::gpu::UnitColumns;

void start_inputs_at_zero(const AttentionInputs &inputs) {
    for (ImageParam input : {inputs.query, inputs.query_halves, inputs.key, inputs.value, inputs.key_granules,
                             inputs.value_granules, inputs.bias, inputs.mask, inputs.alibi_slopes, inputs.sinks}) {
        start_at_zero(input);
    }
    for (const StoredSide *side : {&inputs.stored_key, &inputs.stored_value}) {
        for (ImageParam view :
             {side->halves, side->bytes, side->channel_scales, side->block_scales, side->scale_granules}) {
            start_at_zero(view);
        }
    }
}

void repeat_row_values(Func &output) {
    const std::vector<OutputImageParam> buffers = output.output_buffers();
    start_at_zero(buffers[0]);  // of all
    for (size_t i = 1; i < buffers.size(); ++i) {
        OutputImageParam(buffers[i]).dim(0).set_stride(0);
    }
}

namespace {

// The pipeline owns its passes. `storage`: of outputs that have any type, else null.
KernelPipeline launch_of(const Func &output, std::vector<Argument> arguments, const UnitColumns &columns,
                         const OutputStorage *storage, TypeMacros types, const DeviceTarget &target,
                         const schedules::cuda::Tiles *of_matrices, const schedules::gpu::Carried *carried) {
    Pipeline pipeline(output);
    const DeviceUnits units;
    if (of_matrices) {
        pipeline.add_custom_lowering_pass(new schedules::cuda::EarlyTiles(*of_matrices));
        pipeline.add_custom_lowering_pass(new schedules::cuda::WarpMatrix());
        pipeline.add_custom_lowering_pass(new schedules::cuda::LaneExchange(of_matrices->exchanged));
    }
    pipeline.add_custom_lowering_pass(
        new schedules::cuda::ThinBarriers(of_matrices ? *of_matrices : schedules::cuda::Tiles()));
    pipeline.add_custom_lowering_pass(new schedules::gpu::ThreadRegisters());
    if (carried) {
        pipeline.add_custom_lowering_pass(new schedules::gpu::CarriedState(*carried));
    }
    pipeline.add_custom_lowering_pass(new schedules::gpu::UnitLaunch(units, columns));
    if (of_matrices) {
        pipeline.add_custom_lowering_pass(new schedules::cuda::WideRows(*of_matrices));
    } else {
        pipeline.add_custom_lowering_pass(new schedules::gpu::AlignedBlocks());
    }
    if (storage) {
        const std::string typed = output.outputs() > 1 ? output.name() + ".0" : output.name();
        pipeline.add_custom_lowering_pass(new schedules::gpu::TypedOutput(*storage, typed));
        arguments.insert(arguments.end(), {storage->type, storage->halves});
    }
    if (target.compiled_when_loaded) {
        pipeline.add_custom_lowering_pass(new schedules::gpu::LoadedCode(std::move(types)));
    }
    arguments.insert(arguments.begin(), {units.table, units.count});
    return {pipeline, arguments};
}

}  // namespace

KernelPipeline as_typed_launch(const Func &output, std::vector<Argument> arguments, const UnitColumns &columns,
                               TypeMacros types, const DeviceTarget &target, const schedules::cuda::Tiles *of_matrices,
                               const schedules::gpu::Carried *carried) {
    const OutputStorage storage;
    types[storage.type.name()] = loaded_code::kOutputType;
    return launch_of(output, std::move(arguments), columns, &storage, std::move(types), target, of_matrices, carried);
}

TypeMacros type_macros(const AttentionInputs &inputs) {
    return {{inputs.query_type.name(), loaded_code::kQueryType},
            {inputs.stored_key.type.name(), loaded_code::kKeyType},
            {inputs.stored_value.type.name(), loaded_code::kValueType}};
}

KernelPipeline as_launch(const Func &output, std::vector<Argument> arguments, const UnitColumns &columns,
                         TypeMacros types, const DeviceTarget &target) {
    return launch_of(output, std::move(arguments), columns, nullptr, std::move(types), target, nullptr, nullptr);
}

namespace {

// In float32, or on tensor cores.
KernelPipeline build_attention(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    const bool matrices = spec.multiplies_matrices();
    AttentionInputs inputs = matrices ? AttentionInputs::of_matrices(spec.matrix_type) : AttentionInputs::of_any_type();
    AttentionStages stages(inputs, StageOptions{.hooks = spec.hooks,
                                                .rows = spec.tile.rows,
                                                .chunk = spec.tile.keys,
                                                .unit = kLog2E,
                                                .head = spec.tile.head,
                                                .slices = spec.tile.slices,
                                                .thread_rows = spec.tile.thread_rows,
                                                .of_cuda = Target(target.halide_target).has_feature(Target::CUDA)});
    (matrices ? schedules::cuda::schedule_matrix_attention : schedules::gpu::schedule_attention)(stages, spec.tile);
    const schedules::cuda::Tiles early = matrices ? schedules::cuda::early_tiles(stages) : schedules::cuda::Tiles();
    const schedules::gpu::Carried carried = {stages.state_before.name(), stages.state.name()};
    start_inputs_at_zero(inputs);
    repeat_row_values(stages.output);
    return as_typed_launch(stages.output, inputs.arguments(), attention_columns(inputs, stages.output.name()),
                           type_macros(inputs), target, matrices ? &early : nullptr, &carried);
}

KernelPipeline build_merge(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    MergeInputs inputs;
    const bool of_cuda = Target(target.halide_target).has_feature(Target::CUDA);
    MergeStages stages(inputs, {.one_loop_nest = true,
                                .head = spec.tile.head,
                                .block = spec.tile.keys,
                                .exp2 = of_cuda ? exp2_of_cuda : exp2_nonpositive});
    schedules::gpu::schedule_merge(stages, spec.tile);
    for (ImageParam input : {inputs.partial_output, inputs.partial_lse, inputs.sinks}) {
        start_at_zero(input);
    }
    repeat_row_values(stages.output);
    return as_typed_launch(stages.output, inputs.arguments(), merge_columns(inputs, stages.output.name()), {}, target);
}

// Where a kernel has more hooks than a problem, the runtime gives those operands that change nothing. There are none
// for softcap.
struct HookKinds {
    HookMask without_neutral = 0, neutral = 0;
};

HookKinds hook_kinds() {
    HookKinds kinds;
    for (const ScoreHook &hook : score_hooks()) {
        (hook.has_neutral ? kinds.neutral : kinds.without_neutral) |= hook.bit;
    }
    return kinds;
}

}  // namespace

std::vector<HookMask> hook_sets() {
    const auto [without_neutral, neutral] = hook_kinds();
    return {0, without_neutral, neutral, without_neutral | neutral};
}

std::vector<HookMask> fewest_hook_sets() {
    const auto [without_neutral, neutral] = hook_kinds();
    return {neutral, without_neutral | neutral};
}

const std::vector<KernelKind> &device_kinds() {
    static const std::vector<KernelKind> kinds = {
        KernelKind::kFlash,         KernelKind::kSplitKv,       KernelKind::kMerge,   KernelKind::kNaive,
        KernelKind::kUnfusedScores, KernelKind::kUnfusedValues, KernelKind::kScores,  KernelKind::kProbabilities,
        KernelKind::kAppend,        KernelKind::kBlockScales,   KernelKind::kQuantize};
    return kinds;
}

std::string DeviceKernelSpec::name(const std::string &target) const {
    std::string text = std::string(kind_name(kind)) + "_" + target + "_r" + std::to_string(tile.rows);
    if (kind != KernelKind::kMerge) {
        text += "k" + std::to_string(tile.keys) + "s" + std::to_string(tile.slices) + "t" +
                std::to_string(tile.thread_rows);
    }
    text += "h" + std::to_string(tile.head);
    if (multiplies_matrices()) {
        text += matrix_type == HATTN_FLOAT16 ? "_float16" : "_bfloat16";
    }
    return text + hook_suffix(hooks);
}

std::vector<DeviceKernelSpec> kernels_of(const DeviceTarget &target, KernelKind kind) {
    if (is_plain(kind)) {
        return plain_kernels_of(target, kind);
    }
    const std::vector<schedules::gpu::Tile> &tiles = kind == KernelKind::kMerge   ? target.merge_tiles
                                                     : kind == KernelKind::kFlash ? target.flash_tiles
                                                                                  : target.split_kv_tiles;
    static const std::vector<schedules::gpu::Tile> no_tiles;
    std::vector<DeviceKernelSpec> specs;
    for (const schedules::gpu::Tile &tile : tiles) {
        for (HookMask hooks : kind == KernelKind::kMerge ? std::vector<HookMask>{0} : hook_sets()) {
            specs.push_back({kind, hooks, tile});
        }
    }
    for (HookMask hooks : hook_sets()) {
        const auto &matrix_tiles = kind == KernelKind::kSplitKv ? target.matrix_split_kv_tiles
                                   : kind != KernelKind::kFlash ? no_tiles
                                   : hooks == 0                 ? target.matrix_flash_tiles
                                                                : target.matrix_hook_tiles;
        for (const schedules::gpu::Tile &tile : matrix_tiles) {
            for (hattn_dtype type : kMatrixTypes) {
                specs.push_back({kind, hooks, tile, type});
            }
        }
    }
    return specs;
}

namespace {

DeviceChoice::Part part_named(const std::string &word) {
    const size_t colon = word.find(':');
    const std::string part = colon == std::string::npos ? "" : word.substr(colon);
    if (part != "" && part != ":few" && part != ":rest") {
        throw std::invalid_argument("device '" + word + "': only :few or :rest may follow its name");
    }
    return part == ""       ? DeviceChoice::Part::kAll
           : part == ":few" ? DeviceChoice::Part::kFew
                            : DeviceChoice::Part::kRest;
}

// Whether a kernel is one of few. `sizes` are those of its like.
bool is_of_few(const DeviceKernelSpec &spec, const std::set<int> &sizes) {
    if (spec.hooks == 0) {
        return true;
    }
    const bool smallest = spec.tile.head == *sizes.begin(), largest = spec.tile.head == *sizes.rbegin();
    if (spec.multiplies_matrices()) {
        const bool is_half_of_largest = 2 * spec.tile.head == *sizes.rbegin();
        return (largest || is_half_of_largest) && std::ranges::count(fewest_hook_sets(), spec.hooks) > 0;
    }
    return smallest || largest;
}

}  // namespace

DeviceChoice::DeviceChoice(const std::string &word)
    : target(schedules::gpu::find_device_target(word.substr(0, word.find(':')))), part(part_named(word)) {}

std::vector<DeviceKernelSpec> kernels_of(const DeviceChoice &choice, KernelKind kind) {
    std::vector<DeviceKernelSpec> specs = kernels_of(choice.target, kind);
    std::map<bool, std::set<int>> sizes;
    for (const DeviceKernelSpec &spec : specs) {
        sizes[spec.multiplies_matrices()].insert(spec.tile.head);
    }
    std::erase_if(specs, [&](const DeviceKernelSpec &spec) {
        const bool of_few = is_of_few(spec, sizes[spec.multiplies_matrices()]);
        return choice.part != DeviceChoice::Part::kAll && of_few != (choice.part == DeviceChoice::Part::kFew);
    });
    return specs;
}

void for_each_device_kernel(const std::function<void(const DeviceKernelSpec &, const DeviceTarget &)> &visit) {
    for (const DeviceTarget &target : schedules::gpu::device_targets()) {
        for (KernelKind kind : device_kinds()) {
            for (const DeviceKernelSpec &spec : kernels_of(target, kind)) {
                visit(spec, target);
            }
        }
    }
}

KernelPipeline build_kernel(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    if (is_plain(spec.kind)) {
        return build_plain(spec, target);
    }
    return spec.kind == KernelKind::kMerge ? build_merge(spec, target) : build_attention(spec, target);
}

Halide::Module compile_kernel(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    Module module = build_kernel(spec, target).compile(spec.symbol(target.name), target.halide_target);
    if (spec.multiplies_matrices()) {
        schedules::cuda::replace_matrix_calls(module);
    }
    return module;
}

}  // namespace hattn::generators
