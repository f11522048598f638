// A lowering pass: outputs of a type that a kernel is told.
#pragma once

#include "Halide.h"

namespace hattn::schedules::gpu {

// The memory of a float32 output as 16-bit numbers, and which of both it holds.
struct OutputStorage {
    Halide::Param<int> type{"output_type"};                           // a hattn_dtype
    Halide::ImageParam halves{Halide::UInt(16), 1, "output_halves"};  // strides and offsets are those of the output
};

// A pipeline's output has one type. Where a float32 output is stored, this stores a 16-bit number instead if the type
// says so. Vectors are of ../cuda/wide_output.h, which has looked at the type.
class TypedOutput : public Halide::Internal::IRMutator {
public:
    TypedOutput(const OutputStorage &storage, std::string output) : storage_(storage), output_(std::move(output)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::Store *store) override;

    OutputStorage storage_;
    std::string output_;
};

}  // namespace hattn::schedules::gpu
