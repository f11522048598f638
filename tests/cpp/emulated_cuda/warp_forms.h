#pragma once

#include "lane_map.h"

namespace hattn::emulated_cuda {

// Names of the forms of mov that take a register apart, and that make one of parts.
std::string unpacking(const std::string &opcode, size_t parts);
std::string packing(const std::string &opcode, size_t parts);

void add_warp_forms(Forms &forms);

}  // namespace hattn::emulated_cuda
