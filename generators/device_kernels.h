// Kernels of devices with work groups, and the list of all of them. One launch computes many units, each what one call
// of a kernel of kernel_spec.h computes: the algorithms are the same.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel_spec.h"
#include "schedules/gpu/targets.h"

namespace hattn::generators {

struct DeviceKernelSpec {
    KernelKind kind;
    HookMask hooks = 0;
    schedules::gpu::Tile tile;
    // Of queries, keys and values; with float32, which stands for all types, products are of float32 numbers.
    hattn_dtype matrix_type = HATTN_FLOAT32;

    bool multiplies_matrices() const {
        return matrix_type != HATTN_FLOAT32;
    }
    bool any_float() const {  // see AttentionInputs::of_any_float()
        return tile.key_groups > 0;
    }
    std::string name(const std::string &target) const;
    std::string symbol(const std::string &target) const {
        return "hattnkernel_" + name(target);
    }
};

using schedules::gpu::DeviceTarget;

// A device and which of its kernels a build has, by a word. "cuda": all. "cuda:few": every size without hooks, and the
// smallest and the largest with every set of them; of those that multiply matrices, the largest and that of half its
// size with the fewest sets. For builds that are to be quick and small: they serve whatever all of them do, some of it
// more slowly. "cuda:rest": those that such a build has not, for its tests.
struct DeviceChoice {
    enum class Part { kAll, kFew, kRest };

    explicit DeviceChoice(const std::string &word);
    const DeviceTarget &target;
    Part part = Part::kAll;
};

// Of a thread on tensor cores. With four, what hooks need does not fit in registers.
inline constexpr int kRowsWithHooks = 2;

inline constexpr hattn_dtype kMatrixTypes[] = {HATTN_FLOAT16, HATTN_BFLOAT16};

const std::vector<KernelKind> &device_kinds();
std::vector<HookMask> hook_sets();
std::vector<HookMask> fewest_hook_sets();  // of these, that serve all problems
std::vector<DeviceKernelSpec> kernels_of(const DeviceTarget &target, KernelKind kind);
std::vector<DeviceKernelSpec> kernels_of(const DeviceChoice &choice, KernelKind kind);
void for_each_device_kernel(const std::function<void(const DeviceKernelSpec &, const DeviceTarget &)> &visit);

KernelPipeline build_kernel(const DeviceKernelSpec &spec, const DeviceTarget &target);
Halide::Module compile_kernel(const DeviceKernelSpec &spec, const DeviceTarget &target);

}  // namespace hattn::generators
