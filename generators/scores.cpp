#include "scores.h"

#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

ScoreOutput::ScoreOutput(const AttentionInputs &inputs, HookMask hooks, bool probabilities)
    : ScoreStages(inputs, StageOptions{.hooks = hooks}), known_lse("known_lse_of_row"), output("scores") {
    Expr tile_row = min(r, inputs.rows() - 1);
    known_lse(r) = finite_logit(inputs.known_lse(tile_row), 1.0f);
    Expr logit = logits(r, j, 0);
    Expr masked = logit <= kLowestReference;
    if (probabilities) {
        Expr distance = min(logit - known_lse(r), 0.0f);
        output(j, r) = select(masked, 0.0f, exp2_nonpositive(distance * kLog2E));
    } else {
        output(j, r) = select(masked, negative_infinity(), logit);
    }
}

}  // namespace hattn::generators
