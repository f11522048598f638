// Rows on their way into a cache, keys turned by rotary position embedding (Su et al., RoFormer, 2021).
#pragma once

#include <vector>

#include "Halide.h"

namespace hattn::generators {

struct AppendInputs {
    Halide::Param<int> type{"rows_type"};                         // a hattn_dtype, of queries
    Halide::ImageParam rows{Halide::Float(32), 2, "rows"};        // (d, i)
    Halide::ImageParam halves{Halide::UInt(16), 2, "halves"};     // (d, i), the same memory
    Halide::ImageParam cosines{Halide::Float(32), 2, "cosines"};  // (pair, i)
    Halide::ImageParam sines{Halide::Float(32), 2, "sines"};      // likewise
    Halide::Param<int> pairs{"pairs"};                            // that turn; 0: none
    Halide::Param<int> interleaved{"interleaved"};                // pairs are (2n, 2n + 1), else (n, n + pairs)

    std::vector<Halide::Argument> arguments() const;
};

struct AppendStages {
    explicit AppendStages(const AppendInputs &inputs);

    Halide::Var d{"d"}, i{"i"};
    Halide::Param<int> type;  // that `element` and `partner` are selected by
    Halide::Func element;     // (d, i) of the rows, in float32
    Halide::Func partner;     // (d, i) the other one of its pair, or the same where none turns
    Halide::Func output;      // (d, i)
};

}  // namespace hattn::generators
