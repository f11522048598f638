#include "unseen_rows.h"

#include <set>
#include <stdexcept>
#include <vector>

#include "generators/attention_stages.h"
#include "schedules/statements.h"

namespace hattn::schedules::simd {

using namespace Halide;
using namespace Halide::Internal;

namespace {

bool is_unseen_rows(const std::string &name) {
    return name.starts_with(generators::kUnseenRows);
}

class Reads : public IRVisitor {
public:
    bool found = false;

private:
    using IRVisitor::visit;

    void visit(const Load *load) override {
        found = found || is_unseen_rows(load->name);
        IRVisitor::visit(load);
    }
};

// Leaves out what is added to the sums of the first rows of a block.
class OfOtherRows : public IRMutator {
public:
    OfOtherRows(int rows, int block) : rows_(rows), block_(block) {}

private:
    using IRMutator::visit;

    Stmt visit(const Store *store) override {
        Reads reads;
        store->value.accept(&reads);
        const Ramp *ramp = store->index.as<Ramp>();
        const auto first = ramp ? as_const_int(ramp->base) : std::nullopt;
        return reads.found && first && *first % block_ < rows_ ? Evaluate::make(0) : Stmt(store);
    }

    int rows_, block_;
};

// Takes out the frees of arrays that are not allocated in a statement.
class TakenFrees : public IRMutator {
public:
    std::vector<Stmt> taken;

private:
    using IRMutator::visit;

    Stmt visit(const Allocate *allocation) override {
        inside_.insert(allocation->name);
        return IRMutator::visit(allocation);
    }

    Stmt visit(const Free *freed) override {
        if (inside_.contains(freed->name)) {
            return freed;
        }
        taken.emplace_back(freed);
        return Evaluate::make(0);
    }

    std::set<std::string> inside_;
};

// What a Func is given by a statement, which defines it by a single store.
Expr value_of(const Stmt &produced) {
    const Stmt statement = without_lets(produced);
    const Block *block = statement.as<Block>();
    if (block && is_profiling(block->first)) {
        return value_of(block->rest);
    }
    const Store *store = statement.as<Store>();
    if (!store) {
        throw std::runtime_error(std::string(generators::kUnseenRows) + " is defined by more than a value");
    }
    return store->value;
}

// select(seen, 0, call), as selections are left that hold in some passes of a loop, or the call.
const Call *call_in(const Expr &value) {
    const Select *select = value.as<Select>();
    return (select ? select->false_value : value).as<Call>();
}

}  // namespace

Stmt UnseenRows::visit(const Allocate *allocation) {
    return is_unseen_rows(allocation->name) ? mutate(allocation->body) : IRMutator::visit(allocation);
}

Stmt UnseenRows::visit(const Free *freed) {
    return is_unseen_rows(freed->name) ? Evaluate::make(0) : IRMutator::visit(freed);
}

Stmt UnseenRows::visit(const ProducerConsumer *stage) {
    if (!is_unseen_rows(stage->name)) {
        return IRMutator::visit(stage);
    }
    if (stage->is_producer) {
        said_[stage->name] = value_of(stage->body);
        return Evaluate::make(0);
    }
    const Call *call = call_in(said_.at(stage->name));
    if (!call) {
        return mutate(stage->body);
    }
    TakenFrees frees;
    const Stmt body = frees.mutate(stage->body);
    const auto number = [call](size_t argument) { return static_cast<int>(*as_const_int(call->args[argument])); };
    Stmt made = mutate(body);
    for (size_t rows = 1; rows < call->args.size(); rows += 2) {
        OfOtherRows others(number(rows), number(0));
        made = IfThenElse::make(call->args[rows + 1], mutate(others.mutate(body)), made);
    }
    for (const Stmt &freed : frees.taken) {
        made = Block::make(made, mutate(freed));
    }
    return made;
}

Expr UnseenRows::visit(const Load *load) {
    return is_unseen_rows(load->name) ? make_zero(load->type) : IRMutator::visit(load);
}

// Lest what such a Func is hides products of pairs from Halide. Other zeros stay.
Expr UnseenRows::visit(const Add *add) {
    const Expr a = mutate(add->a), b = mutate(add->b);
    const auto became_zero = [](const Expr &mutated, const Expr &before) {
        return !mutated.same_as(before) && is_const_zero(mutated);
    };
    return became_zero(a, add->a) ? b : became_zero(b, add->b) ? a : Add::make(a, b);
}

}  // namespace hattn::schedules::simd
