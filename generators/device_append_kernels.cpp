#include "device_append_kernels.h"

#include <cstddef>

#include "append.h"
#include "convert.h"
#include "device_launch.h"
#include "runtime/device/loaded_code.h"
#include "runtime/device/unit_record.h"
#include "schedules/gpu/append.h"

namespace hattn::generators {

using namespace Halide;
using schedules::gpu::UnitColumns;

namespace {

void start_all_at_zero(std::initializer_list<ImageParam> inputs, Func &output) {
    for (const ImageParam &input : inputs) {
        start_at_zero(input);
    }
    start_at_zero(output.output_buffer());
}

KernelPipeline build_append(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    using Record = AppendRecord;
    AppendInputs inputs;
    AppendStages stages(inputs);
    schedules::gpu::schedule_append(stages, spec.tile);
    start_all_at_zero({inputs.rows, inputs.halves, inputs.cosines, inputs.sines}, stages.output);
    const std::string output = stages.output.name();
    const UnitColumns columns = {.count = column(sizeof(Record)),
                                 .values = {{output + ".extent.1", column(offsetof(Record, count))}},
                                 .offsets = {{inputs.rows.name(), column(offsetof(Record, rows))},
                                             {inputs.halves.name(), column(offsetof(Record, rows))},
                                             {inputs.cosines.name(), column(offsetof(Record, angles))},
                                             {inputs.sines.name(), column(offsetof(Record, angles))},
                                             {output, column(offsetof(Record, output))}}};
    return as_typed_launch(stages.output, inputs.arguments(), columns, {{inputs.type.name(), loaded_code::kQueryType}},
                           target);
}

KernelPipeline build_block_scales(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    using Record = QuantizeRecord;
    BlockScales stages;
    schedules::gpu::schedule_block_scales(stages, spec.tile);
    start_all_at_zero({stages.rows}, stages.output);
    const std::string output = stages.output.name();
    const UnitColumns columns = {.count = column(sizeof(Record)),
                                 .values = {{output + ".extent.1", column(offsetof(Record, count))}},
                                 .offsets = {{stages.rows.name(), column(offsetof(Record, rows))},
                                             {output, column(offsetof(Record, block_scales))}}};
    return as_launch(stages.output, stages.arguments(), columns, {}, target);
}

KernelPipeline build_quantize(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    using Record = QuantizeRecord;
    Quantize stages;
    schedules::gpu::schedule_quantize(stages, spec.tile);
    start_all_at_zero({stages.rows, stages.channel_scales, stages.block_scales}, stages.output);
    const std::string output = stages.output.name();
    const UnitColumns columns = {.count = column(sizeof(Record)),
                                 .values = {{output + ".extent.1", column(offsetof(Record, count))}},
                                 .offsets = {{stages.rows.name(), column(offsetof(Record, rows))},
                                             {stages.channel_scales.name(), column(offsetof(Record, channel_scales))},
                                             {stages.block_scales.name(), column(offsetof(Record, block_scales))},
                                             {output, column(offsetof(Record, output))}}};
    return as_launch(stages.output, stages.arguments(), columns, {}, target);
}

}  // namespace

bool is_append(KernelKind kind) {
    return kind == KernelKind::kAppend || kind == KernelKind::kBlockScales || kind == KernelKind::kQuantize;
}

KernelPipeline build_append_kernel(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    switch (spec.kind) {
    case KernelKind::kBlockScales:
        return build_block_scales(spec, target);
    case KernelKind::kQuantize:
        return build_quantize(spec, target);
    default:
        return build_append(spec, target);
    }
}

}  // namespace hattn::generators
