#include "merge.h"

#include "kernel_inputs.h"
#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

std::vector<Argument> MergeInputs::arguments() const {
    return {partial_output, partial_lse, sinks, heads};
}

MergeStages::MergeStages(const MergeInputs &inputs, const MergeOptions &options)
    : over_states(0, inputs.partial_lse.dim(1).extent(), "over_states"),
      maximum("maximum"),
      weights("weights"),
      total("total"),
      sum("sum"),
      output("output"),
      lse("lse") {
    auto state_lse = [&](Expr row, Expr state) { return finite_logit(inputs.partial_lse(row, state), 1.0f); };
    maximum(r) = kLowestReference;
    maximum(r) = max(maximum(r), state_lse(r, over_states));
    weights(r, n) = exp2_nonpositive((state_lse(r, n) - maximum(r)) * kLog2E);
    total(r) = 0.0f;
    total(r) += weights(r, over_states);
    // A state without visible keys weighs nothing, whatever its output holds.
    Expr weight = weights(r, over_states);
    sum(d, r) = 0.0f;
    sum(d, r) += select(weight > 0.0f, weight * inputs.partial_output(d, r, over_states), 0.0f);

    Expr row = i * inputs.heads + h;
    Expr sink = finite_logit(inputs.sinks(h), 1.0f);
    Expr final_max = max(maximum(row), sink);
    Expr shift = exp2_nonpositive((maximum(row) - final_max) * kLog2E);
    Expr all = total(row) * shift + exp2_nonpositive((sink - final_max) * kLog2E);
    Expr merged = sum(d, row) * select(all > 0.0f, shift / max(all, 1e-37f), 0.0f);
    Expr merged_lse = select(all > 0.0f, final_max + log(max(all, 1e-37f)), negative_infinity());
    if (options.one_loop_nest) {
        output(d, i, h) = Tuple(merged, merged_lse);
        return;
    }
    output(d, i, h) = merged;
    lse(i, h) = merged_lse;
    allow_any_stride(lse);
}

}  // namespace hattn::generators
