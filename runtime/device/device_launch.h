// Launching kernels of the table of devices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>

#include "device_memory.h"
#include "packed_units.h"

namespace hattn {

// Of a kernel, in an array.
constexpr size_t kMostArguments = 192;

// The table of a launch, on the device.
struct UnitTable {
    // host: what is copied stays there.
    template<typename Record>
    UnitTable(DeviceQueue &queue, std::span<const Record> records, std::pmr::memory_resource *host)
        : UnitTable(queue, records, UnitOrder::of(records.size()), host) {}
    template<typename Record>
    UnitTable(DeviceQueue &queue, std::span<const Record> records, const UnitOrder &units_follow,
              std::pmr::memory_resource *host)
        : order(units_follow),
          units(records, order, host),
          listed(units.listed()),
          memory(queue, units.words(), "units"),
          view(memory, {{static_cast<int64_t>(units.words().size()), 1}}) {
        if (!units.words().empty()) {
            memory.upload();
        }
    }

    UnitOrder order;
    PackedUnits units;
    int32_t listed;
    DeviceMemory memory;
    DeviceView view;
};

// Arguments of the kernel's tile, outputs last: views, and pointers to scalars.
template<typename... Arguments>
void launch(DeviceQueue &queue, const DeviceKernelInfo &kernel, UnitTable &units, Arguments &&...arguments) {
    void *context = queue.user_context();
    constexpr size_t kOfTable = 7;  // beside columns
    static_assert(kOfTable + (PackedUnits::kSteps + 1) * PackedUnits::kMostColumns + sizeof...(arguments) <=
                  kMostArguments);
    UnitOrder &order = units.order;
    std::array<void *, kMostArguments> all = {&context,     units.view,    &order.inner, &order.middle,
                                              &order.outer, &order.turned, &units.listed};
    size_t count = kOfTable;
    for (const auto values : {units.units.first(), units.units.steps()}) {
        for (const int32_t &value : values) {
            all[count++] = const_cast<int32_t *>(&value);
        }
    }
    ((all[count++] = arguments), ...);
    queue.kernel = &kernel;
    queue.uploads.flush(queue);
    check_device(kernel.function(all.data()), queue.target, kernel.name);
}

}  // namespace hattn
