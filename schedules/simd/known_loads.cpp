#include "known_loads.h"

#include <vector>

namespace hattn::schedules::simd {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kMostBits = 512;  // of an array, that registers hold

bool is_vector_of_integers(const Expr &value) {
    return value.type().is_vector() && value.type().is_int_or_uint() && is_pure(value);
}

class Inlined : public IRMutator {
public:
    explicit Inlined(const Scope<Expr> &values) : values_(values) {}

private:
    using IRMutator::visit;
    Expr visit(const Variable *variable) override {
        return values_.contains(variable->name) ? mutate(values_.get(variable->name)) : Expr(variable);
    }

    const Scope<Expr> &values_;
};

}  // namespace

Stmt KnownLoads::visit(const Allocate *allocation) {
    const ScopedBinding<int> binding(sizes_, allocation->name, allocation->constant_allocation_size());
    return IRMutator::visit(allocation);
}

Stmt KnownLoads::visit(const LetStmt *let) {
    const ScopedBinding<Expr> binding(is_vector_of_integers(let->value), values_, let->name, let->value);
    return IRMutator::visit(let);
}

Expr KnownLoads::visit(const Let *let) {
    const ScopedBinding<Expr> binding(is_vector_of_integers(let->value), values_, let->name, let->value);
    return IRMutator::visit(let);
}

Expr KnownLoads::visit(const Load *load) {
    const int size = sizes_.contains(load->name) ? sizes_.get(load->name) : 0;
    const bool small = size > 0 && size * load->type.bits() <= kMostBits;
    if (!small || load->type.is_scalar() || load->index.as<Ramp>() || !is_const_one(load->predicate)) {
        return IRMutator::visit(load);
    }
    const Expr index = lower_intrinsics(Inlined(values_).mutate(load->index));
    std::vector<int> places;
    for (int lane = 0; lane < load->type.lanes(); ++lane) {
        const auto place = as_const_int(simplify(extract_lane(index, lane)));
        if (!place || *place < 0 || *place >= size) {
            return IRMutator::visit(load);
        }
        places.push_back(static_cast<int>(*place));
    }
    return Shuffle::make({Load::make(load->type.with_lanes(size), load->name, Ramp::make(0, 1, size), load->image,
                                     load->param, const_true(size), ModulusRemainder())},
                         places);
}

}  // namespace hattn::schedules::simd
