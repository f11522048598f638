// A kernel to compile, and the list of all of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "Halide.h"
#include "schedules/targets.h"
#include "score_hooks.h"

namespace hattn::generators {

enum class KernelKind { kNaive, kFlash, kSplitKv, kUnfusedScores, kUnfusedValues, kScores, kProbabilities, kMerge };

struct KernelSpec {
    KernelKind kind;
    HookMask hooks = 0;
    schedules::Tile tile;

    // Valid as a C identifier, and stable: forcing and the tuning database speak of kernels by name.
    std::string name(const std::string &target) const;
    // Of the compiled function. The prefix keeps clear of the public hattn_ symbols, which shared libraries export.
    std::string symbol(const std::string &target) const {
        return "hattnkernel_" + name(target);
    }
};

const char *kind_name(KernelKind kind);
bool parse_kind(const std::string &name, KernelKind *kind);

// The tiles of the library's own kernels.
std::vector<schedules::Tile> tiles_of(const schedules::TargetRow &target, KernelKind kind);

// Every kernel of a target, of one kind.
std::vector<KernelSpec> kernels_of(const schedules::TargetRow &target, KernelKind kind);

void for_each_kind(const std::function<void(KernelKind)> &visit);

// Every kernel of the library, with its target.
void for_each_kernel(const std::function<void(const KernelSpec &, const schedules::TargetRow &)> &visit);

// Algorithm and schedule: the pipeline and its arguments, ready to compile.
struct KernelPipeline {
    Halide::Pipeline pipeline;
    std::vector<Halide::Argument> arguments;
};
KernelPipeline build_kernel(const KernelSpec &spec, const schedules::TargetRow &target);
Halide::Module compile_kernel(const KernelSpec &spec, const schedules::TargetRow &target);

// A kernel that can be compiled, whether or not it is one of the library's.
struct NamedKernel {
    KernelSpec spec;
    schedules::TargetRow target;
};
// The inverse of KernelSpec::name(), for all targets and stand-ins; throws std::invalid_argument.
NamedKernel kernel_named(const std::string &name);

}  // namespace hattn::generators
