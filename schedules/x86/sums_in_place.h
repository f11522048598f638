// Products of small matrices that are added to a state where it lies, for overlapped_bands.h.
#pragma once

#include "Halide.h"

namespace hattn::schedules::x86 {

// A state that a loop multiplies and adds sums of products to, `state = sums + state * factor`, in two steps.
struct SumsInPlace {
    Halide::Internal::Stmt rescaled;  // state *= factor, unless all factors are 1
    Halide::Internal::Stmt products;  // state += products: registers of sums start as what the state is, not at zero
    std::string sums;                 // the array that has no use any more
};

// Of the products of a band and the loop over elements of its state that adds them, whose passes are vectors of rows.
// The state has to have elements for all that products have, rounded up as they are. Throws std::runtime_error if that
// adds something else, or in another way.
SumsInPlace sums_in_place(const Halide::Internal::Stmt &products, const Halide::Internal::For *state);

}  // namespace hattn::schedules::x86
