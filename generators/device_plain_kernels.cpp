#include "device_plain_kernels.h"

#include <cstddef>

#include "device_append_kernels.h"
#include "device_launch.h"
#include "runtime/device/unit_record.h"
#include "schedules/gpu/plain.h"
#include "scores.h"
#include "softmax_math.h"
#include "unfused.h"

namespace hattn::generators {

using namespace Halide;
using schedules::gpu::UnitColumns;

namespace {

template<typename Record>
constexpr int column(size_t offset) {
    static_assert(offsetof(Record, tile) == 0);  // so that columns of UnitRecord stay where they are
    return generators::column(offset);
}

StageOptions options_of(const DeviceKernelSpec &spec) {
    return {.hooks = spec.hooks, .rows = spec.tile.rows, .unit = kLog2E, .one_loop_nest = true};
}

KernelPipeline build_naive(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    AttentionInputs inputs = AttentionInputs::of_any_type();
    AttentionStages stages(inputs, options_of(spec));
    schedules::gpu::schedule_naive(stages, spec.tile);
    start_inputs_at_zero(inputs);
    repeat_row_values(stages.output);
    return as_launch(stages.output, inputs.arguments(), attention_columns(inputs, stages.output.name()),
                     type_macros(inputs), target);
}

UnitColumns unfused_columns(const AttentionInputs &in, const std::string &output) {
    UnitColumns columns = attention_columns(in, output);
    columns.count = column<UnfusedRecord>(sizeof(UnfusedRecord));
    return columns;
}

KernelPipeline build_unfused_scores(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    AttentionInputs inputs = AttentionInputs::of_any_type();
    UnfusedScores stages(inputs, options_of(spec));
    schedules::gpu::schedule_unfused_scores(stages, spec.tile);
    start_inputs_at_zero(inputs);
    repeat_row_values(stages.weights);
    const std::string output = stages.weights.name();
    UnitColumns columns = unfused_columns(inputs, output);
    columns.values[output + ".0.extent.0"] = columns.values.at(inputs.key_count.name());
    columns.offsets[output + ".0"] = column<UnfusedRecord>(offsetof(UnfusedRecord, weights));
    for (const char *statistic : {".1", ".2"}) {
        columns.offsets[output + statistic] = column<UnfusedRecord>(offsetof(UnfusedRecord, statistics));
    }
    return as_launch(stages.weights, inputs.arguments(), columns, type_macros(inputs), target);
}

KernelPipeline build_unfused_values(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    UnfusedValueInputs inputs(AttentionInputs::of_any_type());
    StageOptions options = options_of(spec);
    options.hooks = hiding_hooks();  // one kernel for all problems
    UnfusedValues stages(inputs, options);
    schedules::gpu::schedule_unfused_values(stages, spec.tile);
    start_inputs_at_zero(inputs);
    for (const ImageParam &input : {inputs.weights, inputs.maximum, inputs.sum}) {
        start_at_zero(input);
    }
    repeat_row_values(stages.output);
    UnitColumns columns = unfused_columns(inputs, stages.output.name());
    columns.offsets[inputs.weights.name()] = column<UnfusedRecord>(offsetof(UnfusedRecord, weights));
    for (const ImageParam &statistic : {inputs.maximum, inputs.sum}) {
        columns.offsets[statistic.name()] = column<UnfusedRecord>(offsetof(UnfusedRecord, statistics));
    }
    return as_launch(stages.output, inputs.arguments(), columns, type_macros(inputs), target);
}

KernelPipeline build_scores(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    AttentionInputs inputs = AttentionInputs::of_any_type();
    Param<float> masked("masked");
    ScoreOutput stages(inputs, spec.hooks, spec.kind == KernelKind::kProbabilities, masked);
    schedules::gpu::schedule_score_output(stages, spec.tile);
    start_inputs_at_zero(inputs);
    start_at_zero(inputs.known_lse);
    start_at_zero(stages.output.output_buffer());
    const std::string output = stages.output.name();
    UnitColumns columns = attention_columns(inputs, output);
    columns.count = column<ScoreRecord>(sizeof(ScoreRecord));
    columns.values[inputs.key.name() + ".extent.0"] = column<ScoreRecord>(offsetof(ScoreRecord, key_dim));
    columns.values[output + ".extent.0"] = column<ScoreRecord>(offsetof(ScoreRecord, keys));
    columns.values[output + ".extent.1"] = column<ScoreRecord>(offsetof(ScoreRecord, tile.tile_rows));
    columns.offsets[output] = column<ScoreRecord>(offsetof(ScoreRecord, tile.output));
    columns.offsets[inputs.known_lse.name()] = column<ScoreRecord>(offsetof(ScoreRecord, tile.lse));
    std::vector<Argument> arguments = inputs.arguments();
    arguments.push_back(masked);
    return as_launch(stages.output, arguments, columns, type_macros(inputs), target);
}

}  // namespace

bool is_plain(KernelKind kind) {
    return kind == KernelKind::kNaive || kind == KernelKind::kUnfusedScores || kind == KernelKind::kUnfusedValues ||
           kind == KernelKind::kScores || kind == KernelKind::kProbabilities || is_append(kind);
}

std::vector<DeviceKernelSpec> plain_kernels_of(const DeviceTarget &target, KernelKind kind) {
    std::vector<DeviceKernelSpec> specs;
    for (const schedules::gpu::Tile &tile : is_append(kind) ? target.append_tiles : target.plain_tiles) {
        if (is_append(kind) || kind == KernelKind::kUnfusedValues) {
            specs.push_back({kind, 0, tile});
            continue;
        }
        // Raw and capped scores are those of a problem with fewer hooks than its operands are for.
        for (HookMask hooks : kind == KernelKind::kScores ? hook_sets() : fewest_hook_sets()) {
            specs.push_back({kind, hooks, tile});
        }
    }
    return specs;
}

KernelPipeline build_plain(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    switch (spec.kind) {
    case KernelKind::kNaive:
        return build_naive(spec, target);
    case KernelKind::kUnfusedScores:
        return build_unfused_scores(spec, target);
    case KernelKind::kUnfusedValues:
        return build_unfused_values(spec, target);
    case KernelKind::kScores:
    case KernelKind::kProbabilities:
        return build_scores(spec, target);
    default:
        return build_append_kernel(spec, target);
    }
}

}  // namespace hattn::generators
