// Kernels as the JSON text of a pack describes them, see pack_file.h.
#pragma once

#include <deque>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "device/device_table.h"
#include "kernel_table.h"

namespace hattn {

// Throw StatusError, with the path and what is wrong, where this library or CPU cannot use the kernel, and
// nlohmann::json::exception where the text is not as it should be. strings: keeps what the result points to. All but
// the function.
KernelInfo read_kernel(const std::string &path, const nlohmann::json &row, std::deque<std::string> &strings);
DeviceKernelInfo read_device_kernel(const std::string &path, const nlohmann::json &row,
                                    std::deque<std::string> &strings);

}  // namespace hattn
