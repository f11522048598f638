#include "device_launch.h"

#include "runtime/device/loaded_code.h"
#include "schedules/cuda/exchanged_blocks.h"
#include "schedules/cuda/lane_exchange.h"
#include "schedules/cuda/overlaid_tiles.h"
#include "schedules/cuda/rare_steps.h"
#include "schedules/cuda/thin_barriers.h"
#include "schedules/cuda/warp_matrix.h"
#include "schedules/cuda/wide_output.h"
#include "schedules/cuda/wide_rows.h"
#include "schedules/gpu/aligned_blocks.h"
#include "schedules/gpu/loaded_code.h"
#include "schedules/gpu/thread_registers.h"
#include "schedules/gpu/typed_output.h"

namespace hattn::generators {

using namespace Halide;
using schedules::gpu::DeviceTarget;
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
                         const OutputStorage *storage, TypeMacros types, const DeviceTarget &target, OwnPasses passes) {
    Pipeline pipeline(output);
    const DeviceUnits units(columns.count);
    const auto &of_matrices = passes.of_matrices;
    if (of_matrices) {
        pipeline.add_custom_lowering_pass(new schedules::cuda::OverlaidTiles(*of_matrices));
        pipeline.add_custom_lowering_pass(new schedules::cuda::EarlyTiles(*of_matrices));
        pipeline.add_custom_lowering_pass(new schedules::cuda::WarpMatrix(of_matrices->warpgroups));
        pipeline.add_custom_lowering_pass(new schedules::cuda::ExchangedBlocks(*of_matrices));
        pipeline.add_custom_lowering_pass(new schedules::cuda::LaneExchange(of_matrices->exchanged));
    }
    pipeline.add_custom_lowering_pass(
        new schedules::cuda::ThinBarriers(of_matrices.value_or(schedules::cuda::Tiles())));
    if (of_matrices) {
        pipeline.add_custom_lowering_pass(new schedules::cuda::RareSteps(of_matrices->rare));
    }
    pipeline.add_custom_lowering_pass(new schedules::gpu::ThreadRegisters());
    if (passes.carried) {
        pipeline.add_custom_lowering_pass(new schedules::CarriedState(*passes.carried));
    }
    pipeline.add_custom_lowering_pass(new schedules::gpu::UnitLaunch(units, columns));
    if (of_matrices) {
        pipeline.add_custom_lowering_pass(new schedules::cuda::WideRows(*of_matrices));
    } else if (passes.typed_loops) {
        pipeline.add_custom_lowering_pass(passes.typed_loops.release());
    } else {
        pipeline.add_custom_lowering_pass(new schedules::gpu::AlignedBlocks());
    }
    if (storage) {
        const std::string typed = output.outputs() > 1 ? output.name() + ".0" : output.name();
        if (of_matrices && !of_matrices->stored.stage.empty()) {
            pipeline.add_custom_lowering_pass(new schedules::cuda::WideOutput(of_matrices->stored, *storage, typed));
        }
        pipeline.add_custom_lowering_pass(new schedules::gpu::TypedOutput(*storage, typed));
        arguments.insert(arguments.end(), {storage->type, storage->halves});
    }
    if (target.compiled_when_loaded) {
        pipeline.add_custom_lowering_pass(new schedules::gpu::LoadedCode(std::move(types)));
    }
    const std::vector<Argument> of_units = units.arguments();
    arguments.insert(arguments.begin(), of_units.begin(), of_units.end());
    return {pipeline, arguments};
}

}  // namespace

KernelPipeline as_typed_launch(const Func &output, std::vector<Argument> arguments, const UnitColumns &columns,
                               TypeMacros types, const DeviceTarget &target, OwnPasses passes) {
    const OutputStorage storage;
    types[storage.type.name()] = loaded_code::kOutputType;
    return launch_of(output, std::move(arguments), columns, &storage, std::move(types), target, std::move(passes));
}

TypeMacros type_macros(const AttentionInputs &inputs) {
    return {{inputs.query_type.name(), loaded_code::kQueryType},
            {inputs.stored_key.type.name(), loaded_code::kKeyType},
            {inputs.stored_value.type.name(), loaded_code::kValueType}};
}

KernelPipeline as_launch(const Func &output, std::vector<Argument> arguments, const UnitColumns &columns,
                         TypeMacros types, const DeviceTarget &target) {
    return launch_of(output, std::move(arguments), columns, nullptr, std::move(types), target, {});
}

}  // namespace hattn::generators
