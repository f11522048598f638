#include "merge.h"

#include "kernel_inputs.h"
#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

std::vector<Argument> MergeInputs::arguments() const {
    return {partial_output, partial_lse, sinks, heads};
}

namespace {

RDom states_in_blocks(const Expr &states, int block) {
    return block > 0 ? RDom({{0, block}, {0, (states + (block - 1)) / block}}, "over_states")
                     : RDom(0, states, "over_states");
}

}  // namespace

MergeStages::MergeStages(const MergeInputs &inputs, const MergeOptions &options)
    : over_states(states_in_blocks(inputs.partial_lse.dim(1).extent(), options.block)),
      maximum("maximum"),
      weights("weights"),
      element("element"),
      total("total"),
      sum("sum"),
      output("output"),
      lse("lse") {
    const bool in_blocks = options.block > 0;
    Expr states = inputs.partial_lse.dim(1).extent();
    Expr which = in_blocks ? over_states.y * options.block + over_states.x : Expr(over_states.x);
    const auto there = [&](const Expr &state) { return in_blocks ? min(state, states - 1) : state; };
    const auto state_lse = [&](const Expr &row, const Expr &state) {
        Expr value = finite_logit(inputs.partial_lse(row, there(state)), 1.0f);
        return in_blocks ? select(state < states, value, kMaskedScore) : value;
    };
    maximum(r) = kLowestReference;
    maximum(r) = max(maximum(r), state_lse(r, which));
    weights(r, n) = options.exp2((state_lse(r, n) - maximum(r)) * kLog2E);
    total(r) = 0.0f;
    total(r) += weights(r, which);
    // A state without visible keys weighs nothing, whatever its output holds.
    Expr weight = weights(r, which);
    Expr in_row = options.head > 0 ? min(d, inputs.partial_output.dim(0).extent() - 1) : Expr(d);
    element(d, r, n) = inputs.partial_output(in_row, r, there(n));
    sum(d, r) = 0.0f;
    sum(d, r) += select(weight > 0.0f, weight * element(d, r, which), 0.0f);

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
