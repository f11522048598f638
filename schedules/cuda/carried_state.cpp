#include "carried_state.h"

#include <algorithm>
#include <stdexcept>

#include "generators/attention_stages.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

// Arrays that Halide has moved out of loops over threads are numbered: state.0.7.
Stmt CarriedState::visit(const Allocate *allocation) {
    if (starts_with(allocation->name, state_ + ".")) {
        const size_t element = std::stoul(allocation->name.substr(state_.size() + 1));
        arrays_.resize(std::max(arrays_.size(), element + 1));
        arrays_[element] = allocation->name;
    }
    return IRMutator::visit(allocation);
}

Stmt CarriedState::visit(const LetStmt *let) {
    lets_[let->name] = let->value;
    return IRMutator::visit(let);
}

Expr CarriedState::visit(const Let *let) {
    lets_[let->name] = let->value;
    return IRMutator::visit(let);
}

Expr CarriedState::visit(const Call *call) {
    if (call->name != generators::kCarriedCall) {
        return IRMutator::visit(call);
    }
    Expr of = call->args.at(0);
    while (const Variable *variable = of.as<Variable>()) {
        const auto found = lets_.find(variable->name);
        of = found == lets_.end() ? Expr() : found->second;
    }
    const Load *place = of.as<Load>();
    const auto element = as_const_int(simplify(call->args.at(1)));
    if (!place || !element || *element >= static_cast<int64_t>(arrays_.size())) {
        std::ostringstream text;
        text << "no place in the state: " << Expr(call);
        throw std::runtime_error(text.str());
    }
    return Load::make(call->type, arrays_[static_cast<size_t>(*element)], place->index, Buffer<>(), Parameter(),
                      place->predicate, ModulusRemainder());
}

}  // namespace hattn::schedules::cuda
