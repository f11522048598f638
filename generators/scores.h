// Score outputs: the logits themselves, or the probabilities they become.
#pragma once

#include "attention_stages.h"

namespace hattn::generators {

// output(j, r) in natural units, j the absolute key index; -inf (or 0, as a probability) where masked, or `masked` if
// that is defined.
struct ScoreOutput : ScoreStages {
    ScoreOutput(const AttentionInputs &inputs, HookMask hooks, bool probabilities, Halide::Expr masked = {});

    Halide::Var j{"j"};
    Halide::Func known_lse;  // (r) natural, finite
    Halide::Func output;     // (j, r)
};

}  // namespace hattn::generators
