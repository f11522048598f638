// The generated source that tells the runtime about device kernels (see runtime/device/device_table.h).
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace hattn::generators {

// Of some devices, which may be none: words of DeviceChoice.
void write_device_table(std::ostream &out, const std::vector<std::string> &device_words);

}  // namespace hattn::generators
