#include "device_kernels.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include "merge.h"
#include "runtime/device/unit_record.h"
#include "schedules/gpu/attention.h"
#include "schedules/gpu/merge.h"
#include "schedules/gpu/thread_registers.h"
#include "schedules/gpu/unit_launch.h"
#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;
using schedules::gpu::DeviceUnits;
using schedules::gpu::UnitColumns;

namespace {

constexpr KernelKind kDeviceKinds[] = {KernelKind::kFlash, KernelKind::kSplitKv, KernelKind::kMerge};

constexpr int column(size_t offset) {
    return static_cast<int>(offset / sizeof(int32_t));
}

UnitColumns attention_columns(const AttentionInputs &in, const std::string &output) {
    using Record = UnitRecord;
    return {.count = column(sizeof(Record)),
            .values = {{in.query.name() + ".extent.1", column(offsetof(Record, rows))},
                       {in.query.name() + ".extent.2", column(offsetof(Record, heads))},
                       {output + ".0.extent.1", column(offsetof(Record, tile_rows))},
                       {in.key_count.name(), column(offsetof(Record, key_count))},
                       {in.key_skip.name(), column(offsetof(Record, key_skip))},
                       {in.first_offset.name(), column(offsetof(Record, first_offset))},
                       {in.last_offset.name(), column(offsetof(Record, last_offset))},
                       {in.position_offset.name(), column(offsetof(Record, position_offset))}},
            .offsets = {{in.query.name(), column(offsetof(Record, query))},
                        {in.key.name(), column(offsetof(Record, key))},
                        {in.value.name(), column(offsetof(Record, value))},
                        {in.bias.name(), column(offsetof(Record, bias))},
                        {in.mask.name(), column(offsetof(Record, mask))},
                        {in.key_granules.name(), column(offsetof(Record, key_granules))},
                        {in.value_granules.name(), column(offsetof(Record, value_granules))},
                        {in.alibi_slopes.name(), column(offsetof(Record, alibi_slopes))},
                        {in.sinks.name(), column(offsetof(Record, sinks))},
                        {output + ".0", column(offsetof(Record, output))},
                        {output + ".1", column(offsetof(Record, lse))}}};
}

UnitColumns merge_columns(const MergeInputs &in, const std::string &output) {
    using Record = MergeRecord;
    return {.count = column(sizeof(Record)),
            .values = {{in.partial_lse.name() + ".extent.1", column(offsetof(Record, states))}},
            .offsets = {{in.partial_output.name(), column(offsetof(Record, partial_output))},
                        {in.partial_lse.name(), column(offsetof(Record, partial_lse))},
                        {in.sinks.name(), column(offsetof(Record, sinks))},
                        {output + ".0", column(offsetof(Record, output))},
                        {output + ".1", column(offsetof(Record, lse))}}};
}

// Coordinates of the runtime's buffers start at 0, and said so, indices stay simple.
template<typename Buffer>
void start_at_zero(Buffer buffer) {
    for (int i = 0; i < buffer.dimensions(); ++i) {
        buffer.dim(i).set_min(0);
    }
}

// The lse of a row is stored once per element of the head, to one place.
void repeat_lse(Func &output) {
    start_at_zero(output.output_buffers()[0]);  // of both
    output.output_buffers()[1].dim(0).set_stride(0);
}

KernelPipeline as_launch(Pipeline pipeline, std::vector<Argument> arguments, const UnitColumns &columns) {
    const DeviceUnits units;
    // The pipeline owns its passes.
    pipeline.add_custom_lowering_pass(new schedules::gpu::ThreadRegisters());
    pipeline.add_custom_lowering_pass(new schedules::gpu::UnitLaunch(units, columns));
    arguments.insert(arguments.begin(), {units.table, units.count});
    return {pipeline, arguments};
}

KernelPipeline build_attention(const DeviceKernelSpec &spec) {
    AttentionInputs inputs(KeyStorage::kFloat32, 1);
    AttentionStages stages(inputs, StageOptions{.hooks = spec.hooks,
                                                .rows = spec.tile.rows,
                                                .chunk = spec.tile.keys,
                                                .unit = kLog2E,
                                                .head = spec.tile.head,
                                                .slices = spec.tile.slices});
    schedules::gpu::schedule_attention(stages, spec.tile);
    for (ImageParam input : {inputs.query, inputs.key, inputs.value, inputs.key_granules, inputs.value_granules,
                             inputs.bias, inputs.mask, inputs.alibi_slopes, inputs.sinks}) {
        start_at_zero(input);
    }
    repeat_lse(stages.output);
    return as_launch(Pipeline(stages.output), inputs.arguments(), attention_columns(inputs, stages.output.name()));
}

KernelPipeline build_merge(const DeviceKernelSpec &spec) {
    MergeInputs inputs;
    MergeStages stages(inputs, {.one_loop_nest = true});
    schedules::gpu::schedule_merge(stages, spec.tile);
    for (ImageParam input : {inputs.partial_output, inputs.partial_lse, inputs.sinks}) {
        start_at_zero(input);
    }
    repeat_lse(stages.output);
    return as_launch(Pipeline(stages.output), inputs.arguments(), merge_columns(inputs, stages.output.name()));
}

// Where a kernel has more hooks than a problem, the runtime gives those operands that change nothing. There are none
// for softcap.
std::vector<HookMask> hook_sets() {
    HookMask without_neutral = 0, neutral = 0;
    for (const ScoreHook &hook : score_hooks()) {
        (hook.has_neutral ? neutral : without_neutral) |= hook.bit;
    }
    return {0, without_neutral, neutral, without_neutral | neutral};
}

}  // namespace

std::string DeviceKernelSpec::name(const std::string &target) const {
    std::string text = std::string(kind_name(kind)) + "_" + target + "_r" + std::to_string(tile.rows);
    if (kind != KernelKind::kMerge) {
        text += "k" + std::to_string(tile.keys) + "s" + std::to_string(tile.slices) + "t" +
                std::to_string(tile.thread_rows);
    }
    return text + "h" + std::to_string(tile.head) + hook_suffix(hooks);
}

std::vector<DeviceKernelSpec> kernels_of(const DeviceTarget &target, KernelKind kind) {
    const std::vector<schedules::gpu::Tile> &tiles = kind == KernelKind::kMerge   ? target.merge_tiles
                                                     : kind == KernelKind::kFlash ? target.flash_tiles
                                                                                  : target.split_kv_tiles;
    std::vector<DeviceKernelSpec> specs;
    for (const schedules::gpu::Tile &tile : tiles) {
        for (HookMask hooks : kind == KernelKind::kMerge ? std::vector<HookMask>{0} : hook_sets()) {
            specs.push_back({kind, hooks, tile});
        }
    }
    return specs;
}

DeviceChoice::DeviceChoice(const std::string &word)
    : target(schedules::gpu::find_device_target(word.substr(0, word.find(':')))),
      few(word.find(':') != std::string::npos) {
    if (few && !word.ends_with(":few")) {
        throw std::invalid_argument("device '" + word + "': only :few may follow its name");
    }
}

std::vector<DeviceKernelSpec> kernels_of(const DeviceChoice &choice, KernelKind kind) {
    std::vector<DeviceKernelSpec> specs = kernels_of(choice.target, kind);
    const auto [smallest, largest] =
        std::ranges::minmax(specs, {}, [](const DeviceKernelSpec &spec) { return spec.tile.head; });
    std::erase_if(specs, [&, least = smallest.tile.head, most = largest.tile.head](const DeviceKernelSpec &spec) {
        return choice.few && spec.hooks != 0 && spec.tile.head != least && spec.tile.head != most;
    });
    return specs;
}

void for_each_device_kernel(const std::function<void(const DeviceKernelSpec &, const DeviceTarget &)> &visit) {
    for (const DeviceTarget &target : schedules::gpu::device_targets()) {
        for (KernelKind kind : kDeviceKinds) {
            for (const DeviceKernelSpec &spec : kernels_of(target, kind)) {
                visit(spec, target);
            }
        }
    }
}

KernelPipeline build_kernel(const DeviceKernelSpec &spec, const DeviceTarget &) {
    return spec.kind == KernelKind::kMerge ? build_merge(spec) : build_attention(spec);
}

Halide::Module compile_kernel(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    return build_kernel(spec, target).compile(spec.symbol(target.name), target.halide_target);
}

}  // namespace hattn::generators
