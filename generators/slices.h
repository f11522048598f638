// Values of a row that its slices hold in parts, see attention_stages.h.
#pragma once

#include "Halide.h"

namespace hattn::generators {

using Join = Halide::Expr (*)(Halide::Expr, Halide::Expr);

// Of value(0), value(1), ..., in this order.
template<typename Value>
Halide::Expr of_all_slices(int slices, Value value, Join join) {
    Halide::Expr all = value(0);
    for (int slice = 1; slice < slices; ++slice) {
        all = join(all, value(slice));
    }
    return all;
}

}  // namespace hattn::generators
