#include "device_kernels.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "device_launch.h"
#include "device_plain_kernels.h"
#include "merge.h"
#include "runtime/device/device_table.h"
#include "schedules/cuda/attention.h"
#include "schedules/cuda/early_tiles.h"
#include "schedules/cuda/matrix_calls.h"
#include "schedules/cuda/resident_blocks.h"
#include "schedules/gpu/attention.h"
#include "schedules/gpu/decode.h"
#include "schedules/gpu/merge.h"
#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;
using schedules::gpu::UnitColumns;

namespace {

bool is_of_cuda(const DeviceTarget &target) {
    return Target(target.halide_target).has_feature(Target::CUDA);
}

std::unique_ptr<schedules::gpu::TypedLoops> typed_loops(const AttentionInputs &inputs, const AttentionStages &stages,
                                                        const schedules::gpu::Tile &tile) {
    const StoredSide &key = inputs.stored_key, &value = inputs.stored_value;
    const schedules::gpu::TypedSides sides = {
        .key_type = key.type.name(),
        .value_type = value.type.name(),
        .row_layout = inputs.row_layout.name(),
        .rows = {inputs.key.name(), key.halves.name(), inputs.value.name(), value.halves.name()}};
    return std::make_unique<schedules::gpu::TypedLoops>(sides, "." + stages.over_chunks.x.name(),
                                                        tile.head / tile.slices);
}

// In float32, or on tensor cores.
KernelPipeline build_attention(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    const bool matrices = spec.multiplies_matrices(), groups = spec.any_float();
    AttentionInputs inputs = matrices ? AttentionInputs::of_matrices(spec.matrix_type)
                             : groups ? AttentionInputs::of_any_float()
                                      : AttentionInputs::of_any_type();
    AttentionStages stages(inputs, StageOptions{.hooks = spec.hooks,
                                                .rows = spec.tile.rows,
                                                .chunk = spec.tile.keys,
                                                .unit = kLog2E,
                                                .head = spec.tile.head,
                                                .slices = spec.tile.slices,
                                                .slice_keys = matrices ? 1 : schedules::gpu::slice_keys(spec.tile),
                                                .thread_rows = spec.tile.thread_rows,
                                                .key_groups = spec.tile.key_groups,
                                                .of_cuda = is_of_cuda(target),
                                                .sums_first = spec.tile.buffers > 1});
    (matrices ? schedules::cuda::schedule_matrix_attention
     : groups ? schedules::gpu::schedule_decode
              : schedules::gpu::schedule_attention)(stages, spec.tile);
    OwnPasses passes;
    if (matrices) {
        passes.of_matrices = schedules::cuda::early_tiles(stages, spec.tile);
    } else if (groups) {
        passes.typed_loops = typed_loops(inputs, stages, spec.tile);
    }
    if (!groups) {
        passes.carried = {stages.state_before.name(), stages.state.name()};
    }
    start_inputs_at_zero(inputs);
    repeat_row_values(stages.output);
    UnitColumns columns = attention_columns(inputs, stages.output.name());
    columns.grow = columns_grow(spec.kind, spec.hooks, spec.matrix_type, spec.any_float(), spec.tile.thread_rows,
                                spec.tile.warpgroups);
    return as_typed_launch(stages.output, inputs.arguments(), columns, type_macros(inputs), target, std::move(passes));
}

KernelPipeline build_merge(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    MergeInputs inputs;
    MergeStages stages(inputs, {.one_loop_nest = true,
                                .head = spec.tile.head,
                                .block = spec.tile.keys,
                                .exp2 = is_of_cuda(target) ? exp2_of_cuda : exp2_nonpositive});
    schedules::gpu::schedule_merge(stages, spec.tile);
    for (ImageParam input : {inputs.partial_output, inputs.partial_lse, inputs.sinks}) {
        start_at_zero(input);
    }
    repeat_row_values(stages.output);
    UnitColumns columns = merge_columns(inputs, stages.output.name());
    columns.grow = columns_grow(spec.kind, spec.hooks, spec.matrix_type, spec.any_float(), spec.tile.thread_rows,
                                spec.tile.warpgroups);
    return as_typed_launch(stages.output, inputs.arguments(), columns, {}, target);
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
        text += tile.warpgroups ? "_warpgroups" : "";
    }
    return text + hook_suffix(hooks);
}

namespace {

// Blocks of a multiprocessor that tiles with `blocks` have with hooks. With two, what those need does not fit in
// registers.
constexpr int kBlocksWithHooks = 1;

}  // namespace

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
    for (const schedules::gpu::Tile &tile : kind == KernelKind::kFlash ? target.warpgroup_flash_tiles : no_tiles) {
        for (hattn_dtype type : kMatrixTypes) {
            specs.push_back({kind, 0, tile, type});
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
    if (const auto &tile = spec.tile; tile.blocks > 0) {
        const int blocks = spec.hooks == 0 ? tile.blocks : std::min(tile.blocks, kBlocksWithHooks);
        schedules::cuda::ask_for_resident_blocks(module, tile.threads(), blocks);
    }
    return module;
}

}  // namespace hattn::generators
