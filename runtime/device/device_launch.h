// Launching kernels of the table of devices.
#pragma once

#include <cstdint>
#include <span>

#include "device_memory.h"

namespace hattn {

// The table of a launch, on the device.
struct UnitTable {
    template<typename Record>
    UnitTable(DeviceQueue &queue, std::span<const Record> records)
        : count(static_cast<int32_t>(records.size())),
          memory(queue, reinterpret_cast<const int32_t *>(records.data()), count * columns<Record>(), "units"),
          view(memory, {{columns<Record>(), 1}, {count, columns<Record>()}}) {
        memory.upload();
    }
    template<typename Record>
    static constexpr int64_t columns() {
        return sizeof(Record) / sizeof(int32_t);
    }

    int32_t count;
    DeviceMemory memory;
    DeviceView view;
};

// Arguments of the kernel's tile, outputs last: views, and pointers to scalars.
template<typename... Arguments>
void launch(DeviceQueue &queue, const DeviceKernelInfo &kernel, UnitTable &units, Arguments &&...arguments) {
    void *context = queue.user_context();
    void *all[] = {&context, units.view, &units.count, arguments...};
    queue.kernel = &kernel;
    queue.uploads.flush(queue);
    check_device(kernel.function(all), queue.target, kernel.name);
}

}  // namespace hattn
