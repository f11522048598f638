// A lowering pass: what kernels ask of whoever loads their code, where that is text for a compiler of the driver's.
#pragma once

#include <map>
#include <string>

#include "Halide.h"

namespace hattn::schedules::gpu {

// Arguments that are types become macros, so that the compiler sees no type but the one at hand, and conversions
// between float16 and float32 become functions, since devices need not have float16. runtime/device/loaded_code.h
// defines both.
class LoadedCode : public Halide::Internal::IRMutator {
public:
    // types: names of macros, by name of the argument.
    explicit LoadedCode(std::map<std::string, const char *> types) : types_(std::move(types)) {}

private:
    using IRMutator::visit;

    // What was computed from types before the launch goes where it is used, for the compiler to see.
    Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override;
    Halide::Expr visit(const Halide::Internal::Variable *variable) override;
    Halide::Expr visit(const Halide::Internal::Cast *cast) override;
    Halide::Expr visit(const Halide::Internal::Reinterpret *bits) override;

    std::map<std::string, const char *> types_;
};

}  // namespace hattn::schedules::gpu
