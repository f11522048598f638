// The generated source that tells the runtime about kernels, targets and score hooks (see runtime/kernel_table.h).
#pragma once

#include <ostream>

namespace hattn::generators {

void write_kernel_table(std::ostream &out);

}  // namespace hattn::generators
