// The generated source that tells the runtime about kernels, targets and score hooks (see runtime/kernel_table.h).
#pragma once

#include <ostream>

#include "schedules/targets.h"

namespace hattn::generators {

void write_kernel_table(const schedules::Architecture &architecture, std::ostream &out);

}  // namespace hattn::generators
