#include "paired_units.h"

namespace hattn {

UnitOrder in_pairs(const UnitOrder &order, int64_t compute_units) {
    const int64_t count = int64_t{order.inner} * order.middle * order.outer;
    if (count <= compute_units || count > 2 * compute_units) {
        return order;
    }
    UnitOrder pairs = order;
    if (order.outer == 1) {
        pairs = {.inner = 1, .outer = static_cast<int32_t>(count), .grow = order.grow};
    }
    pairs.turned = static_cast<int32_t>(compute_units / (pairs.inner * pairs.middle));
    return pairs;
}

int64_t unit_at(const UnitOrder &order, int64_t start) {
    const int64_t of_outer = int64_t{order.inner} * order.middle, outer = start / of_outer;
    return (outer < order.turned ? order.turned - 1 - outer : outer) * of_outer + start % of_outer;
}

}  // namespace hattn
