#include "device_queue.h"

#include "runtime/structs.h"

namespace hattn {

DeviceQueue::DeviceQueue(const DeviceTargetInfo &kernels_for, int32_t id)
    : target(kernels_for), driver(device_driver(kernels_for.device)), device_id(id) {
    driver.open(*this, nullptr);
}

DeviceQueue::DeviceQueue(const DeviceTargetInfo &kernels_for, int32_t id, const hattn_attention_args &args)
    : target(kernels_for),
      driver(device_driver(kernels_for.device)),
      device_id(id),
      workspace(args.device_workspace),
      workspace_size(args.device_workspace_size) {
    if (args.queue) {
        const hattn_queue given = read_struct(args.queue, "queue");
        driver.open(*this, &given);
    } else {
        driver.open(*this, nullptr);
    }
}

}  // namespace hattn
