// How far the choices within a plan's capacities may go, which is what its workspace has to allow for.
#pragma once

#include <array>

#include "selection.h"

namespace hattn {

// By algorithm. A bound over all sequences of up to the problem's lengths, from its rule and its tuning entries.
std::array<Reach, 5> reaches_of(const KernelSet &kernels, const Problem &problem);

}  // namespace hattn
