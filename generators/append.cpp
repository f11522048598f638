#include "append.h"

#include "number_formats.h"

namespace hattn::generators {

using namespace Halide;

std::vector<Argument> AppendInputs::arguments() const {
    return {type, rows, halves, cosines, sines, pairs, interleaved};
}

AppendStages::AppendStages(const AppendInputs &inputs)
    : type(inputs.type), element("element"), partner("partner"), output("appended") {
    Expr adjacent = inputs.interleaved != 0;
    Expr is_second = select(adjacent, d % 2, d / max(inputs.pairs, 1)) == 1;
    Expr distance = select(adjacent, 1, inputs.pairs);
    Expr turns = d < 2 * inputs.pairs;
    // Elements that do not turn look at the first pair, or at what stands for it.
    Expr other = select(turns, select(is_second, d - distance, d + distance), d);
    Expr pair = select(turns, select(adjacent, d / 2, d % max(inputs.pairs, 1)), 0);
    element(d, i) = typed_value(type, inputs.rows(d, i), inputs.halves(d, i));
    partner(d, i) = typed_value(type, inputs.rows(other, i), inputs.halves(other, i));
    Expr turned = element(d, i) * inputs.cosines(pair, i) +
                  select(is_second, 1.0f, -1.0f) * partner(d, i) * inputs.sines(pair, i);
    output(d, i) = select(turns, turned, element(d, i));
}

}  // namespace hattn::generators
