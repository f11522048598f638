// Sums of weights that are added up where these are computed, for overlapped_bands.h.
#pragma once

#include <string>

#include "Halide.h"

namespace hattn::schedules::x86 {

// Parts of a sum that one loop stores, a pass a part, and another adds up.
struct SumsAtOnce {
    Halide::Internal::Stmt zeroed;  // before the first pass
    Halide::Internal::Stmt stored;  // the first loop, whose passes add to what was zeroed
    Halide::Internal::Stmt summed;  // in place of the second loop: takes what they have made of it
};

// Of the array `parts`, whose passes the second loop adds up in the same order, as far as there are keys: what the
// first stores beyond is zero, as are weights that it does not compute. Throws std::runtime_error unless the first
// passes of both are of the same parts.
SumsAtOnce sums_at_once(const std::string &parts, const Halide::Internal::For *stored,
                        const Halide::Internal::For *summed);

}  // namespace hattn::schedules::x86
