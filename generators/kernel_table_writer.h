// The generated source that tells the runtime about kernels, targets and score hooks (see runtime/kernel_table.h).
#pragma once

#include <ostream>

#include "kernel_spec.h"
#include "schedules/targets.h"

namespace hattn::generators {

const char *kind_enumerator(KernelKind kind);  // in C++

void write_kernel_table(const schedules::Architecture &architecture, std::ostream &out);

}  // namespace hattn::generators
