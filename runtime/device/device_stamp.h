// What tunings of a device depend on: the device, and the kernels that the library has for it.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "device_driver.h"
#include "device_table.h"

namespace hattn {

struct DeviceStamp {
    std::string target;  // "opencl", "cuda"
    DeviceIdentity identity;
    std::string kernels;  // hash of their names, 16 hexadecimal digits

    // A text that two stamps share exactly if they are the same.
    std::string key() const;
};

// Of a device that is usable.
DeviceStamp device_stamp(const DeviceTargetInfo &target, int32_t device_id);

nlohmann::ordered_json identity_json(const DeviceIdentity &identity);
// The identity with the hash.
nlohmann::ordered_json device_stamp_json(const DeviceStamp &stamp);

}  // namespace hattn
