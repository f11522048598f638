// The generated source that tells the runtime about device kernels (see runtime/device/device_table.h).
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace hattn::generators {

// Of some device targets, which may be none.
void write_device_table(std::ostream &out, const std::vector<std::string> &targets);

}  // namespace hattn::generators
