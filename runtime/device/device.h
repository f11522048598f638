// A device of this build: whether this machine has one, and what Halide says when it fails.
#pragma once

#include <HalideRuntime.h>

#include <exception>
#include <new>
#include <string>
#include <vector>

#include "device_table.h"
#include "runtime/status.h"

namespace hattn {

// Null if the build has no kernels for it.
const DeviceTargetInfo *find_device_target(hattn_device device);
std::string compiled_devices();  // "cpu, opencl"

// Why the machine has no such device that works; "" if it has one. Looks once, by allocating a little memory there, and
// again only if there was none.
std::string device_unusable(const DeviceTargetInfo &target, int32_t device_id);

// The oldest driver that takes PTX with instructions of warpgroups, which is of version 8.0; as cuDriverGetVersion has
// it.
inline constexpr int kWarpgroupDriver = 12000;

// A device whose kernels are wanted.
struct DeviceLimits {
    const DeviceTargetInfo &target;
    int64_t shared_bytes;   // the most that a work group may take
    int64_t compute_units;  // that work groups run on
    bool warpgroups;        // runs kernels of these, see DeviceTile
    const char *about;      // what that follows from; lives as long as the process

    // Whether a kernel's code is for it, and whether it fits.
    bool runs(const DeviceKernelInfo &kernel) const {
        return warpgroups || !kernel.tile.warpgroups;
    }
    bool has_room_for(const DeviceKernelInfo &kernel) const {
        return kernel.shared_bytes <= shared_bytes;
    }
};
// Of one that works. It is asked once.
DeviceLimits device_limits(const DeviceTargetInfo &target, int32_t device_id);

// The kernels for a device that works. Throws StatusError if the build has none, the machine no such device, or that no
// memory left.
const DeviceTargetInfo &usable_device(hattn_device device, int32_t device_id);

// Keeps the first error on this thread, from inside of a call of Halide, for check_device().
void note_device_error(hattn_status status, const char *text);
// Calls body(), which returns a code of Halide's, from a function that kernels call: no exception may pass through
// them.
template<typename Body>
int called_by_kernel(Body body) noexcept {
    try {
        return body();
    } catch (const StatusError &error) {
        note_device_error(error.status(), error.what());
    } catch (const std::bad_alloc &) {
        note_device_error(HATTN_OUT_OF_MEMORY, "out of memory");
    } catch (const std::exception &error) {
        note_device_error(HATTN_INTERNAL_ERROR, error.what());
    }
    return halide_error_code_internal_error;
}
// Forgets it, where a failure does not matter.
void discard_device_error();

// Throws StatusError with what was noted or said by Halide, if there was any such or `code`, which one of Halide's
// functions returned, is an error.
void check_device(int code, const DeviceTargetInfo &target, const char *what);

// What an error of the CUDA driver, a CUresult, or of OpenCL is to a caller.
hattn_status cuda_status(int result);
hattn_status opencl_status(int32_t result);

}  // namespace hattn
