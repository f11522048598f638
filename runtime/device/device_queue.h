// Where an execute puts its work. Halide's functions and kernels are given one as their user context.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device_driver.h"
#include "device_table.h"
#include "device_uploads.h"
#include "launch_functions.h"
#include "loaded_code.h"

namespace hattn {

struct DeviceQueue : LaunchFunctions {
    // The queue given, or the library's own if it is null. Throws StatusError.
    DeviceQueue(const DeviceTargetInfo &kernels_for, int32_t id, const hattn_queue *given = nullptr);
    // The caller's, if there is one, and so many bytes of its workspace, if there is one: no more than were checked.
    DeviceQueue(const DeviceTargetInfo &kernels_for, int32_t id, const hattn_attention_args &args,
                size_t workspace_bytes);
    // Waits after a failure, whose error counts: none of its own is kept.
    void drain() const;
    DeviceQueue(const DeviceQueue &) = delete;
    DeviceQueue &operator=(const DeviceQueue &) = delete;

    // As Halide and kernels take it, and the way back.
    void *user_context() {
        return static_cast<LaunchFunctions *>(this);
    }
    static DeviceQueue &of(void *user_context) {
        return *static_cast<DeviceQueue *>(static_cast<LaunchFunctions *>(user_context));
    }

    const DeviceTargetInfo &target;
    const DeviceDriver &driver;
    const int32_t device_id;
    void *context = nullptr, *queue = nullptr;  // of the driver
    const DeviceKernelInfo *kernel = nullptr;   // that is being launched
    TensorTypes types;                          // of its tensors

    // What is left of the caller's device workspace.
    void *workspace = nullptr;
    size_t workspace_used = 0, workspace_size = 0;
    bool took_memory = false;  // beside the workspace
    DeviceUploads uploads;     // to parts of it
};

}  // namespace hattn
