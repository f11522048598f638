// The generated source that tells the runtime about device kernels (see runtime/device/device_table.h).
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace hattn::generators {

// Of some devices, which may be none: words of DeviceChoice. What launches take is read from where
// write_device_objects() has left it for `<folder>/<device>_<kind>`. Throws std::runtime_error where it has not.
void write_device_table(std::ostream &out, const std::string &folder, const std::vector<std::string> &device_words);

}  // namespace hattn::generators
