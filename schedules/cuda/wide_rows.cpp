#include "wide_rows.h"

#include <sstream>
#include <stdexcept>

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kElements = 8, kWords = 4;  // of 16 and of 32 bits

[[noreturn]] void fail(const Expr &value) {
    std::ostringstream text;
    text << "eight numbers of 16 bits are not moved at once: " << value;
    throw std::runtime_error(text.str());
}

// Of elements side by side, the index of their first word.
Expr words_at(const Expr &index) {
    const Expr simple = simplify(index);
    const Ramp *ramp = simple.as<Ramp>();
    if (!ramp || !is_const_one(ramp->stride)) {
        fail(index);
    }
    return Ramp::make(simplify(ramp->base / (kElements / kWords)), 1, kWords);
}

Expr words_of(const Expr &value) {
    if (const Load *load = value.as<Load>(); load && is_const_one(load->predicate)) {
        return Load::make(UInt(32, kWords), load->name, words_at(load->index), load->image, load->param,
                          const_true(kWords), ModulusRemainder(kWords, 0));
    }
    const Select *select = value.as<Select>();
    if (const Broadcast *condition = select ? select->condition.as<Broadcast>() : nullptr) {
        return Select::make(Broadcast::make(condition->value, kWords), words_of(select->true_value),
                            words_of(select->false_value));
    }
    if (is_const_zero(value)) {
        return make_zero(UInt(32, kWords));
    }
    fail(value);
}

}  // namespace

// Parts of such values go where they are used, so that indices show them.
Stmt WideRows::visit(const LetStmt *let) {
    const bool is_part = let->value.type().lanes() == kElements && is_pure(let->value);
    return is_part ? mutate(substitute(let->name, let->value, let->body)) : IRMutator::visit(let);
}

Stmt WideRows::visit(const Store *store) {
    if (store->value.type() != UInt(16, kElements)) {
        return IRMutator::visit(store);
    }
    if (!is_const_one(store->predicate)) {
        fail(store->predicate);
    }
    const Expr value = substitute_in_all_lets(store->value);
    return Store::make(store->name, words_of(value), words_at(store->index), store->param, const_true(kWords),
                       ModulusRemainder(kWords, 0));
}

}  // namespace hattn::schedules::cuda
