#include "device_stamp.h"

#include <cstring>

#include <nlohmann/json.hpp>

#include "runtime/pack_file.h"

namespace hattn {

namespace {

// As of the CPU's kernels in machine_stamp.cpp.
std::string hash_of_kernels(const DeviceTargetInfo &target) {
    return hash_of_names(device_table().kernels,
                         [&](const DeviceKernelInfo &kernel) { return std::strcmp(kernel.target, target.name) == 0; });
}

}  // namespace

std::string DeviceStamp::key() const {
    std::string text;
    for (const std::string &part : {target, identity.name, identity.capability, std::to_string(identity.compute_units),
                                    std::to_string(identity.memory_bytes), identity.driver, kernels}) {
        text += part + '\n';
    }
    return text;
}

DeviceStamp device_stamp(const DeviceTargetInfo &target, int32_t device_id) {
    return {target.name, device_driver(target.device).identity(device_id), hash_of_kernels(target)};
}

nlohmann::ordered_json identity_json(const DeviceIdentity &identity) {
    return {{"name", identity.name},
            {"capability", identity.capability},
            {"compute_units", identity.compute_units},
            {"memory_bytes", identity.memory_bytes},
            {"driver", identity.driver}};
}

nlohmann::ordered_json device_stamp_json(const DeviceStamp &stamp) {
    nlohmann::ordered_json json = identity_json(stamp.identity);
    json["kernels"] = stamp.kernels;
    return json;
}

}  // namespace hattn
