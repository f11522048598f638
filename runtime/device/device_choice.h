// Which kernel and split a device plan takes: what an entry of a tuning database says, else a rule.
#pragma once

#include "device.h"
#include "runtime/kernel_pack.h"
#include "runtime/selection.h"

namespace hattn {

// Of a whole plan, by the lengths it has room for.
struct DeviceChoice {
    hattn_algorithm algorithm;
    const DeviceKernelInfo *kernel;
    int64_t split_keys;  // keys per split; 0: the algorithm does not split
    Decider decider = Decider::kRule;
    const TuningEntry *entry = nullptr;  // unless the rule decided; lives as long as the database
};

// An algorithm, and the splits that it usually has with a kernel, of such a problem on such a device.
DeviceChoice usual_choice(hattn_algorithm algorithm, const Problem &problem, const DeviceKernelInfo &kernel,
                          const DeviceLimits &device);

// Throws unless kernels of the device hold such heads.
void check_heads(const DeviceTargetInfo &target, int64_t key_dim, int64_t value_dim);
// The larger of a problem's two.
int64_t head_of(const Problem &problem);

// The type of queries, keys and values if tensor cores might multiply them, else float32.
hattn_dtype matrix_type_of(const Problem &problem);

// What a kernel is to do, but for hooks and heads' size.
struct KernelDemand {
    hattn_dtype matrix_type = HATTN_FLOAT32;  // as above
    bool quantized = false;                   // keys or values are
    int64_t rows = 0, heads = 1;              // of each sequence, and those that share keys
};
KernelDemand demand_of(const Problem &problem);
// Whether a kernel is for tensors of such types.
bool takes(const DeviceKernelInfo &kernel, const KernelDemand &demand);

// Of kernels that the device runs and has shared memory for: one for matrices of that type if there is one, of those
// the one with the least padding, of those the one with the fewest hooks, of those the one with the least work for the
// rows there are, of those the one with the fewest rows. A tile's head of 0 is any. Throws StatusError if heads are too
// large, or the device too small.
const DeviceKernelInfo &device_kernel(const DeviceLimits &device, KernelKind kind, uint32_t hooks, int64_t head,
                                      const KernelDemand &demand = {});

// asked: an algorithm, or auto. measured: this machine's entries for such problems on the device, which may say tiles
// of packed kernels.
DeviceChoice choose_for_device(const Problem &problem, const DeviceLimits &device, hattn_algorithm asked,
                               const TuningGrids &measured, const KernelPacks &packs);

}  // namespace hattn
