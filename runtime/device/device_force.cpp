#include "device_force.h"

#include "runtime/kernel_registry.h"
#include "runtime/tensor.h"

namespace hattn {

namespace {

// Kernels of the values take scores, from which hooks are gone.
uint32_t hooks_for(const DeviceKernelInfo &kernel, const Problem &problem) {
    return kernel.kind == KernelKind::kUnfusedValues ? 0 : problem.hooks;
}

}  // namespace

void check_forced_kernel(const DeviceKernelInfo &kernel, const Problem &problem, const DeviceLimits &device) {
    const int64_t head = head_of(problem);
    require(kernel.tile.head == 0 || head <= kernel.tile.head, HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel ",
            kernel.name, " holds heads of at most ", kernel.tile.head, ", but the larger of key_dim and value_dim is ",
            head);
    require(serves(kernel.hooks, hooks_for(kernel, problem)), HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel ",
            kernel.name, " computes hooks ", hook_names(kernel.hooks), ", but the problem has ",
            hook_names(hooks_for(kernel, problem)));
    const KernelDemand demand = demand_of(problem);
    require(!kernel.any_float || !demand.quantized, HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel ", kernel.name,
            " takes keys and values that are not quantised, but the problem's are ", dtype_name(problem.k_dtype),
            " and ", dtype_name(problem.v_dtype));
    require(takes(kernel, demand), HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel ", kernel.name, " multiplies ",
            dtype_name(kernel.matrix_type), " queries, keys and values, but the problem's are ",
            dtype_name(problem.q_dtype), ", ", dtype_name(problem.k_dtype), " and ", dtype_name(problem.v_dtype));
    require(device.runs(kernel), HATTN_NOT_SUPPORTED, "HATTN_FORCE: kernel ", kernel.name,
            " is for compute capability ", kWarpgroupCapability, " and drivers from ", kWarpgroupDriver,
            " on, but the device has ", device.about);
    require(device.has_room_for(kernel), HATTN_NOT_SUPPORTED, "HATTN_FORCE: kernel ", kernel.name, " takes ",
            kernel.shared_bytes, " bytes of shared memory, but the device has ", device.shared_bytes,
            " for a work group");
}

DeviceChoice forced_choice(const Force &force, const Problem &problem, const DeviceLimits &device) {
    const DeviceKernelInfo &kernel = *force.device_kernel;
    check_forced_kernel(kernel, problem, device);
    const bool is_second = kernel.kind == KernelKind::kUnfusedValues;
    const DeviceKernelInfo &first =
        is_second ? device_kernel(device, KernelKind::kUnfusedScores, problem.hooks, head_of(problem)) : kernel;
    return usual_choice(force.algorithm, problem, first, device);
}

}  // namespace hattn
