// Products of matrices by a warpgroup: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

#include <string>

#include "lane_map.h"
#include "ptx_text.h"

namespace hattn::emulated_cuda {

// Of instructions that have matrix A in shared memory or in registers, which their names do not tell.
std::string warpgroup_form_name(const PtxStatement &statement);

void add_warpgroup_forms(Forms &forms);

}  // namespace hattn::emulated_cuda
