// Kernels as code: objects and assembly.
#pragma once

#include <string>
#include <vector>

#include "Halide.h"
#include "kernel_spec.h"

namespace hattn::generators {

// Kernels for the same instructions, which become an object.
class KernelObject {
public:
    void add(const KernelSpec &spec, const schedules::TargetRow &target);  // compiles it
    // Throws std::runtime_error if it cannot.
    void write(const std::string &name, const std::string &path) const;

private:
    std::vector<Halide::Module> modules_;
    std::vector<std::string> by_proxy_;  // functions, see Bfloat16Kernels::by_proxy
    bool is_strict_ = false;             // any is
};

// Assembly and lowered statement of one kernel, NAME.s and NAME.stmt in a directory.
void emit_kernel(const KernelSpec &spec, const schedules::TargetRow &target, const std::string &directory);

}  // namespace hattn::generators
