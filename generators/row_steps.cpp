#include "row_steps.h"

#include "stored_side.h"

namespace hattn::generators {

using namespace Halide;

Expr RowSteps::count() const {
    return (dim + (elements - 1)) / elements;
}

Expr RowSteps::positions() const {
    return count() * elements;
}

Expr RowSteps::start(const Expr &step) const {
    return elements > kScaleBlock ? min(step * elements, dim - elements) : step * elements;
}

}  // namespace hattn::generators
