#include "whole_loads.h"

#include <algorithm>
#include <vector>

namespace hattn::schedules::simd {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kLoadBits = 512;

}  // namespace

Stmt WholeLoads::visit(const Allocate *allocation) {
    const ScopedBinding<int> binding(sizes_, allocation->name, allocation->constant_allocation_size());
    return IRMutator::visit(allocation);
}

Expr WholeLoads::visit(const Shuffle *shuffle) {
    const Load *load = shuffle->vectors.size() == 1 ? shuffle->vectors[0].as<Load>() : nullptr;
    const Ramp *index = load ? load->index.as<Ramp>() : nullptr;
    const auto first = index && is_const_one(index->stride) ? as_const_int(index->base) : std::nullopt;
    if (!first || *first < 0 || !is_const_one(load->predicate) || !sizes_.contains(load->name)) {
        return IRMutator::visit(shuffle);
    }
    const int lanes = load->type.lanes(), of_vector = kLoadBits / load->type.bits();
    const int begin = static_cast<int>(*first) / of_vector * of_vector;
    const int end = (static_cast<int>(*first) + lanes + of_vector - 1) / of_vector * of_vector;
    const bool in_place = lanes <= of_vector / 2 || (lanes <= of_vector && begin == *first);
    if (in_place || end - begin == lanes || end > sizes_.get(load->name)) {
        return IRMutator::visit(shuffle);
    }
    std::vector<int> chosen = shuffle->indices;
    std::ranges::transform(chosen, chosen.begin(), [&](int i) { return i + static_cast<int>(*first) - begin; });
    return Shuffle::make({Load::make(load->type.with_lanes(end - begin), load->name, Ramp::make(begin, 1, end - begin),
                                     load->image, load->param, const_true(end - begin), ModulusRemainder())},
                         chosen);
}

}  // namespace hattn::schedules::simd
