// A kernel to compile, and the list of all of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "Halide.h"
#include "runtime/kernel_table.h"
#include "schedules/simd/maxima_beside_scores.h"
#include "schedules/simd/weights_beside_values.h"
#include "schedules/targets.h"
#include "schedules/x86/overlapped_bands.h"
#include "score_hooks.h"

namespace hattn::generators {

// How kernels for keys and values in memory differ from those with the same tile, see runtime/kernel_table.h: they ask
// for lines into the second-level cache, or into all caches, but further ahead.
enum class FromMemory { kNo, kSecondLevel, kAhead };

struct KernelSpec {
    KernelKind kind;
    KeyStorage storage = KeyStorage::kFloat32;
    HookMask hooks = 0;
    schedules::Tile tile;
    FromMemory from_memory = FromMemory::kNo;

    // Valid as a C identifier, and stable: forcing and the tuning database speak of kernels by name.
    std::string name(const std::string &target) const;
    // Of the compiled function. The prefix keeps clear of the public hattn_ symbols, which shared libraries export.
    std::string symbol(const std::string &target) const {
        return "hattnkernel_" + name(target);
    }
};

// Kernels that are compiled into one object.
struct KernelFamily {
    KernelKind kind;
    const char *name;
    KeyStorage storage = KeyStorage::kFloat32;
    FromMemory from_memory = FromMemory::kNo;
};
const KernelFamily *find_family(const std::string &name);  // null if there is none

const char *kind_name(KernelKind kind);

// The tiles of the library's own kernels: of a kind over float32, and of a family.
std::vector<schedules::Tile> tiles_of(const schedules::TargetRow &target, KernelKind kind);
std::vector<schedules::Tile> tiles_of(const schedules::TargetRow &target, const KernelFamily &family);

// Whether a tile of split_kv has a kernel for keys and values in memory: of those that wait for it.
bool may_be_from_memory(const schedules::TargetRow &target, KeyStorage storage, const schedules::Tile &tile,
                        FromMemory from_memory);

// Every kernel of a target, of one family.
std::vector<KernelSpec> kernels_of(const schedules::TargetRow &target, const KernelFamily &family);

void for_each_family(const std::function<void(const KernelFamily &)> &visit);

// Every kernel of a library built for the architecture, with its target.
void for_each_kernel(const schedules::Architecture &architecture,
                     const std::function<void(const KernelSpec &, const schedules::TargetRow &)> &visit);

// Algorithm and schedule: the pipeline and its arguments, ready to compile.
struct KernelPipeline {
    Halide::Pipeline pipeline;
    std::vector<Halide::Argument> arguments;
    schedules::x86::BandStages bands;  // of kernels that have some
    // Of kernels whose softmax stands beside products.
    schedules::simd::ScoredStages scored = {};
    schedules::simd::WeighedStages weighed = {};

    Halide::Module compile(const std::string &symbol, const char *target);
};
bool fetches_by_row(const KernelSpec &spec, const schedules::TargetRow &target);  // StageOptions::fetch_by_row
// StageOptions::sides is kQuad: one load of four elements of a key serves as many products as a vector has lanes.
bool goes_by_quads(const KernelSpec &spec, const schedules::TargetRow &target);
// Whether a kernel's value loop asks for lines too, its own or next keys'.
bool fetches_in_passes(const KernelSpec &spec, const schedules::TargetRow &target);
// How a kernel for integers alone multiplies them.
IntegerProducts integer_products(const KernelSpec &spec, const schedules::TargetRow &target);
// StageOptions::unseen_step: a vector of rows, of a tile whose rows registers hold all at once.
int unseen_step(const KernelSpec &spec, const schedules::TargetRow &target);
KernelPipeline build_kernel(const KernelSpec &spec, const schedules::TargetRow &target);

// What a kernel's instructions are, and what they ask of a CPU beside what the target asks.
const char *halide_target(const KernelSpec &spec, const schedules::TargetRow &target);
const char *further_cpu_features(const KernelSpec &spec, const schedules::TargetRow &target);
// Which CPUs take a kernel of the library in place of the target's others, see runtime/kernel_table.h.
const char *made_for(const KernelSpec &spec, const schedules::TargetRow &target);

Halide::Module compile_kernel(const KernelSpec &spec, const schedules::TargetRow &target);

// Whether a kernel counts on NaNs, or on sums that stay as they are written: see exp2_strict().
bool is_strict(const KernelSpec &spec);
// Modules in one, of which Halide's own linking forgets whether any is strict about floats: LLVM would take it then
// that no number anywhere is a NaN, and that sums may be taken apart. Others than strict kernels are made for that.
Halide::Module link_strictly(const std::string &name, const std::vector<Halide::Module> &modules);

// A kernel that can be compiled, whether or not it is one of the library's.
struct NamedKernel {
    KernelSpec spec;
    schedules::TargetRow target;
};
// The inverse of KernelSpec::name(), for an architecture's targets and stand-ins; throws std::invalid_argument.
NamedKernel kernel_named(const schedules::Architecture &architecture, const std::string &name);

}  // namespace hattn::generators
