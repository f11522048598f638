#include "device_queue.h"

#include "device.h"
#include "runtime/structs.h"

namespace hattn {

DeviceQueue::DeviceQueue(const DeviceTargetInfo &kernels_for, int32_t id, const hattn_queue *given)
    : target(kernels_for), driver(device_driver(kernels_for.device)), device_id(id) {
    if (given) {
        const hattn_queue read = read_struct(given, "queue");
        driver.open(*this, &read);
    } else {
        driver.open(*this, nullptr);
    }
}

DeviceQueue::DeviceQueue(const DeviceTargetInfo &kernels_for, int32_t id, const hattn_attention_args &args)
    : DeviceQueue(kernels_for, id, args.queue) {
    workspace = args.device_workspace;
    workspace_size = args.device_workspace_size;
}

void DeviceQueue::drain() const {
    discard_device_error();
    try {
        driver.wait(*this);
    } catch (const StatusError &) {
        // The first error counts.
    }
}

}  // namespace hattn
