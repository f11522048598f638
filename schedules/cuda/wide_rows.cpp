#include "wide_rows.h"

#include <sstream>
#include <stdexcept>

#include "matrix_calls.h"

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

// Of words from memory, or zeros, under a condition; undefined: always.
Stmt copy_of(const Expr &words, const Expr &word_index, const Expr &when) {
    Expr bytes = 4 * kWords, from = words;
    if (const Select *select = words.as<Select>()) {
        const Broadcast *condition = select->condition.as<Broadcast>();
        if (!condition || !is_const_zero(select->false_value)) {
            fail(words);
        }
        bytes = Select::make(condition->value, bytes, 0);
        from = select->true_value;
    }
    const Ramp *to = word_index.as<Ramp>();
    if (!from.as<Load>() || !to) {
        fail(words);
    }
    // What a thread copies is often at one address, and constants added to it.
    Expr address = simplify(to->base * 4), offset = 0;
    if (const Add *sum = address.as<Add>(); sum && is_const(sum->b)) {
        offset = sum->b;
        address = sum->a;
    }
    std::vector<Expr> arguments = {address, offset, bytes};
    const std::string name = unique_name("copied");
    for (int i = 0; i < kWords; ++i) {
        arguments.push_back(Shuffle::make_extract_element(Variable::make(from.type(), name), i));
    }
    if (when.defined()) {
        arguments.push_back(Select::make(when, 1, 0));
    }
    const char *call = when.defined() ? kConditionalCopyCall : kCopyCall;
    return LetStmt::make(name, from, Evaluate::make(Call::make(Int(32), call, arguments, Call::Extern)));
}

}  // namespace

Stmt WideRows::visit(const ProducerConsumer *stage) {
    const ScopedValue<bool> early(is_early_, is_early_ || (stage->is_producer && early_.is_early(stage->name)));
    return IRMutator::visit(stage);
}

// Parts of such values go where they are used, so that indices show them.
Stmt WideRows::visit(const LetStmt *let) {
    const bool is_part = let->value.type().lanes() == kElements && is_pure(let->value);
    return is_part ? mutate(substitute(let->name, let->value, let->body)) : IRMutator::visit(let);
}

// A copy by itself (spread_copies.h) is conditional, not in a branch.
Stmt WideRows::visit(const IfThenElse *branch) {
    if (!is_early_ || branch->else_case.defined() || !branch->then_case.as<Store>()) {
        return IRMutator::visit(branch);
    }
    const ScopedValue<Expr> when(when_, branch->condition);
    return mutate(branch->then_case);
}

Stmt WideRows::visit(const Store *store) {
    if (store->value.type() != UInt(16, kElements)) {
        return IRMutator::visit(store);
    }
    if (!is_const_one(store->predicate)) {
        fail(store->predicate);
    }
    const Expr value = substitute_in_all_lets(store->value);
    if (is_early_) {
        return copy_of(words_of(value), words_at(store->index), when_);
    }
    return Store::make(store->name, words_of(value), words_at(store->index), store->param, const_true(kWords),
                       ModulusRemainder(kWords, 0));
}

}  // namespace hattn::schedules::cuda
