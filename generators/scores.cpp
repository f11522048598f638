#include "scores.h"

#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

ScoreOutput::ScoreOutput(const AttentionInputs &inputs, HookMask hooks, bool probabilities, Expr masked)
    : ScoreStages(inputs, StageOptions{.hooks = hooks}), known_lse("known_lse_of_row"), output("scores") {
    Expr tile_row = min(r, inputs.rows() - 1);
    known_lse(r) = finite_logit(inputs.known_lse(tile_row), 1.0f);
    Expr logit = logits(r, j, 0);
    Expr is_masked = logit <= kLowestReference;
    if (!masked.defined()) {
        masked = probabilities ? Expr(0.0f) : negative_infinity();
    }
    if (probabilities) {
        Expr distance = min(logit - known_lse(r), 0.0f);
        output(j, r) = select(is_masked, masked, exp2_nonpositive(distance * kLog2E));
    } else {
        output(j, r) = select(is_masked, masked, logit);
    }
}

}  // namespace hattn::generators
