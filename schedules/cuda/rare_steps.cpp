#include "rare_steps.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "matrix_calls.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

// The stores of a step without a branch: LLVM may copy what follows one, products of a whole warp, to both sides.
Stmt selected(const Expr &condition, const Stmt &step) {
    if (const LetStmt *let = step.as<LetStmt>()) {
        return LetStmt::make(let->name, let->value, selected(condition, let->body));
    }
    if (const Block *block = step.as<Block>()) {
        return Block::make(selected(condition, block->first), selected(condition, block->rest));
    }
    const Store *store = step.as<Store>();
    if (!store || !store->value.type().is_scalar()) {
        std::ostringstream text;
        text << "a rare step is no store: " << step;
        throw std::runtime_error(text.str());
    }
    const Expr kept = Load::make(store->value.type(), store->name, store->index, Buffer<>(), store->param,
                                 store->predicate, ModulusRemainder());
    return Store::make(store->name, Select::make(condition, store->value, kept), store->index, store->param,
                       store->predicate, store->alignment);
}

}  // namespace

Stmt RareSteps::visit(const ProducerConsumer *stage) {
    const ScopedValue<bool> inside(inside_, inside_ || (stage->is_producer && stage->name == stage_));
    return IRMutator::visit(stage);
}

Stmt RareSteps::visit(const Block *block) {
    if (!inside_) {
        return IRMutator::visit(block);
    }
    std::vector<Stmt> steps;
    std::vector<Expr> conditions;
    Stmt rest = block;
    while (rest.defined()) {
        const Block *both = rest.as<Block>();
        const Stmt first = both ? both->first : rest;
        const IfThenElse *step = first.as<IfThenElse>();
        if (!step || step->else_case.defined()) {
            break;
        }
        steps.push_back(selected(step->condition, step->then_case));
        if (std::none_of(conditions.begin(), conditions.end(),
                         [&](const Expr &known) { return equal(known, step->condition); })) {
            conditions.push_back(step->condition);
        }
        rest = both ? both->rest : Stmt();
    }
    if (steps.size() < 2) {
        return IRMutator::visit(block);
    }
    Expr any = conditions[0];
    for (size_t i = 1; i < conditions.size(); ++i) {
        any = any || conditions[i];
    }
    const Expr in_warp = Call::make(Int(32), kAnyLaneCall, {Select::make(any, 1, 0)}, Call::Extern);
    const Stmt skipped = IfThenElse::make(in_warp != 0, Block::make(steps));
    return rest.defined() ? Block::make(skipped, mutate(rest)) : skipped;
}

}  // namespace hattn::schedules::cuda
