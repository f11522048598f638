// From the pipeline of a tile to that of a launch: what kernels of devices have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernel_inputs.h"
#include "kernel_spec.h"
#include "merge.h"
#include "schedules/carried_state.h"
#include "schedules/cuda/early_tiles.h"
#include "schedules/gpu/targets.h"
#include "schedules/gpu/typed_loops.h"
#include "schedules/gpu/unit_launch.h"

namespace hattn::generators {

// Which column of a table of records a field is, by its offset; how many there are, by a record's size.
constexpr int column(size_t offset) {
    return static_cast<int>(offset / sizeof(int32_t));
}

// Columns of a table of UnitRecords (runtime/device/unit_record.h), for the arguments of an attention kernel and an
// output of the given name: a Tuple of output and lse.
schedules::gpu::UnitColumns attention_columns(const AttentionInputs &in, const std::string &output);
schedules::gpu::UnitColumns merge_columns(const MergeInputs &in, const std::string &output);  // of MergeRecords

// Coordinates of the runtime's buffers start at 0, and said so, indices stay simple.
template<typename Buffer>
void start_at_zero(Buffer buffer) {
    for (int i = 0; i < buffer.dimensions(); ++i) {
        buffer.dim(i).set_min(0);
    }
}
void start_inputs_at_zero(const AttentionInputs &inputs);

// The elements of an output Tuple but for the first hold a value per row, stored once per element of the row to one
// place.
void repeat_row_values(Halide::Func &output);

// Of arguments that are types of tensors: the macros that stand for them where kernels are compiled when they are
// loaded, by name of the argument.
using TypeMacros = std::map<std::string, const char *>;
TypeMacros type_macros(const AttentionInputs &inputs);

// Lowering passes, beside those of all kernels.
struct OwnPasses {
    std::optional<schedules::cuda::Tiles> of_matrices;  // with products for tensor cores: the tiles they take early
    std::optional<schedules::Carried> carried;          // where a stage reads the state
    std::unique_ptr<schedules::gpu::TypedLoops> typed_loops;
};

// `arguments` are those of a tile. Outputs are float32.
KernelPipeline as_launch(const Halide::Func &output, std::vector<Halide::Argument> arguments,
                         const schedules::gpu::UnitColumns &columns, TypeMacros types,
                         const schedules::gpu::DeviceTarget &target);
// The output, or the first of its Tuple, is of a type that is an argument as well.
KernelPipeline as_typed_launch(const Halide::Func &output, std::vector<Halide::Argument> arguments,
                               const schedules::gpu::UnitColumns &columns, TypeMacros types,
                               const schedules::gpu::DeviceTarget &target, OwnPasses passes = {});

}  // namespace hattn::generators
