#include "device_kernels.h"

#include <algorithm>
#include <cstddef>

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

UnitColumns attention_columns(const AttentionInputs &in, const std::string &output) {
    const auto column = [](size_t offset) { return static_cast<int>(offset / sizeof(int32_t)); };
#define COLUMN(member) column(offsetof(UnitRecord, member))
    return {.count = static_cast<int>(sizeof(UnitRecord) / sizeof(int32_t)),
            .values = {{in.query.name() + ".extent.1", COLUMN(rows)},
                       {in.query.name() + ".extent.2", COLUMN(heads)},
                       {output + ".0.extent.1", COLUMN(tile_rows)},
                       {output + ".1.extent.1", COLUMN(tile_rows)},
                       {in.key_count.name(), COLUMN(key_count)},
                       {in.key_skip.name(), COLUMN(key_skip)},
                       {in.first_offset.name(), COLUMN(first_offset)},
                       {in.last_offset.name(), COLUMN(last_offset)},
                       {in.position_offset.name(), COLUMN(position_offset)}},
            .offsets = {{in.query.name(), COLUMN(query)},
                        {in.key.name(), COLUMN(key)},
                        {in.value.name(), COLUMN(value)},
                        {in.bias.name(), COLUMN(bias)},
                        {in.mask.name(), COLUMN(mask)},
                        {in.key_granules.name(), COLUMN(key_granules)},
                        {in.value_granules.name(), COLUMN(value_granules)},
                        {in.alibi_slopes.name(), COLUMN(alibi_slopes)},
                        {in.sinks.name(), COLUMN(sinks)},
                        {output + ".0", COLUMN(output)},
                        {output + ".1", COLUMN(lse)}}};
#undef COLUMN
}

// Coordinates of the runtime's buffers start at 0, and said so, indices stay simple.
template<typename Buffer>
void start_at_zero(Buffer buffer) {
    for (int i = 0; i < buffer.dimensions(); ++i) {
        buffer.dim(i).set_min(0);
    }
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
    AttentionInputs inputs;
    AttentionStages stages(inputs, StageOptions{.hooks = spec.hooks,
                                                .rows = spec.tile.rows,
                                                .chunk = spec.tile.keys,
                                                .unit = kLog2E,
                                                .head = spec.tile.head,
                                                .slices = spec.tile.slices});
    schedules::gpu::schedule_attention(stages, spec.tile);
    for (ImageParam input : {inputs.query, inputs.key, inputs.value, inputs.key_granules, inputs.value_granules, inputs.bias,
                             inputs.mask, inputs.alibi_slopes, inputs.sinks}) {
        start_at_zero(input);
    }
    start_at_zero(stages.output.output_buffers()[0]);  // both of them
    // A row's lse is stored once per element, to one place.
    stages.output.output_buffers()[1].dim(0).set_stride(0);
    return as_launch(Pipeline(stages.output), inputs.arguments(), attention_columns(inputs, stages.output.name()));
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
    const HookMask all = (HookMask{1} << score_hooks().size()) - 1;
    std::vector<DeviceKernelSpec> specs;
    for (const schedules::gpu::Tile &tile : tiles) {
        specs.push_back({kind, 0, tile});
        if (kind != KernelKind::kMerge) {
            specs.push_back({kind, all, tile});
        }
    }
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
    return build_attention(spec);
}

}  // namespace hattn::generators
