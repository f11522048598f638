// Launching kernels of the table of devices.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>

#include "device_memory.h"
#include "packed_units.h"

namespace hattn {

// The table of a launch, on the device.
struct UnitTable {
    // host: what is copied stays there.
    template<typename Record>
    UnitTable(DeviceQueue &queue, std::span<const Record> records, std::pmr::memory_resource *host)
        : count(static_cast<int32_t>(records.size())),
          units(records, host),
          differing(units.differing()),
          memory(queue, units.words(), "units"),
          view(memory, {{static_cast<int64_t>(units.words().size()), 1}}) {
        memory.upload();
    }

    int32_t count;
    PackedUnits units;
    int32_t differing;
    DeviceMemory memory;
    DeviceView view;
};

// Arguments of the kernel's tile, outputs last: views, and pointers to scalars.
template<typename... Arguments>
void launch(DeviceQueue &queue, const DeviceKernelInfo &kernel, UnitTable &units, Arguments &&...arguments) {
    void *context = queue.user_context();
    void *all[] = {&context, units.view, &units.count, &units.differing, arguments...};
    queue.kernel = &kernel;
    queue.uploads.flush(queue);
    check_device(kernel.function(all), queue.target, kernel.name);
}

}  // namespace hattn
