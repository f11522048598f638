#include "sums_in_place.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "band_parts.h"
#include "schedules/statements.h"
#include "tile_sums.h"

namespace hattn::schedules::x86 {

using namespace Halide;
using namespace Halide::Internal;

namespace {

// state[index] = sums[of_sums] + state[index] * factor, of a vector of rows.
struct Added {
    std::string state, sums;
    Expr index, of_sums;  // of their first numbers
    Expr factor;
};

Expr first_of(const Expr &index, const Stmt &statement) {
    const Ramp *ramp = index.as<Ramp>();
    if (!ramp || !is_const_one(ramp->stride)) {
        cannot_overlap("the state is added to by other than dense vectors", statement);
    }
    return ramp->base;
}

Added added_by(const Stmt &statement) {
    const Store *store = statement.as<Store>();
    const Add *sum = store ? store->value.as<Add>() : nullptr;
    if (!sum || !is_const_one(store->predicate)) {
        cannot_overlap("the state is no sum", statement);
    }
    const bool sums_first = sum->a.as<Load>() != nullptr;
    const Load *sums = (sums_first ? sum->a : sum->b).as<Load>();
    const Mul *scaled = (sums_first ? sum->b : sum->a).as<Mul>();
    const Load *found = scaled ? scaled->a.as<Load>() : nullptr;
    if (!sums || !found || found->name != store->name || !equal(found->index, store->index)) {
        cannot_overlap("the state is no sum of itself, multiplied, and of something else", statement);
    }
    return {store->name, sums->name, first_of(store->index, statement), first_of(sums->index, statement), scaled->b};
}

// Where sums lie, and where the state does that they are added to.
class Places {
public:
    explicit Places(const For *state) : state_(state) {
        for (const Stmt &statement : statements_of(without_lets(state->body))) {
            vectors_.push_back(added_by(without_lets(statement)));
        }
        const Added &first = vectors_.front();
        for (const Added &other : vectors_) {
            const Expr apart = simplify(other.index - first.index);
            const bool is_alike = other.state == first.state && other.sums == first.sums &&
                                  equal(apart, simplify(other.of_sums - first.of_sums));
            if (!is_alike || expr_uses_var(other.factor, state->name)) {
                cannot_overlap("vectors of the state are added to in different ways", state);
            }
        }
    }

    const Added &first() const {
        return vectors_.front();
    }
    const std::vector<Added> &vectors() const {
        return vectors_;
    }

    // Of the state, for a matrix of sums whose rows are elements.
    Rows of_state(const Rows &sums) const {
        const Added &vector = first();
        const Expr row = next(vector.of_sums), element = simplify(sums.start - at(vector.of_sums, 0));
        if (!is_const_zero(simplify(sums.stride - row))) {
            cannot_overlap("rows of sums are no elements of the state", state_);
        }
        const Expr index = at(vector.index, simplify(element / row)) + element % row;
        return {Variable::make(Handle(), vector.state), simplify(index), next(vector.index)};
    }

private:
    Expr at(const Expr &index, const Expr &element) const {
        return simplify(substitute(state_->name, element, index));
    }
    Expr next(const Expr &index) const {
        const Expr element = Variable::make(Int(32), state_->name);
        return simplify(at(index, element + 1) - at(index, element));
    }

    const For *state_;
    std::vector<Added> vectors_;
};

Expr in_elements(const Expr &bytes) {
    return simplify(bytes / Float(32).bytes());
}

Expr in_bytes(const Expr &elements) {
    return simplify(elements * Float(32).bytes());
}

// What each register of sums is stored in.
class StoredSums : public IRVisitor {
public:
    StoredSums(const Stmt &products, const Places &places) : places_(places) {
        products.accept(this);
    }

    std::map<std::string, Rows> of_register;

private:
    using IRVisitor::visit;

    void visit(const Call *call) override {
        if (call->name == "tile_store") {
            const Rows sums{call->args[2], in_elements(call->args[3]), in_elements(call->args[4])};
            if (sums.array.as<Variable>()->name != places_.first().sums) {
                cannot_overlap("products are stored elsewhere than the state adds", Evaluate::make(Expr(call)));
            }
            of_register[call->args[5].as<Load>()->name] = places_.of_state(sums);
        }
        IRVisitor::visit(call);
    }

    const Places &places_;
};

class InPlace : public IRMutator {
public:
    explicit InPlace(const std::map<std::string, Rows> &of_register) : of_register_(of_register) {}

private:
    using IRMutator::visit;

    Stmt visit(const Store *store) override {
        const Call *zero = store->value.as<Call>();
        if (!zero || zero->name != "tile_zero") {
            return IRMutator::visit(store);
        }
        // As Halide loads tiles, of halves of what is there.
        const Rows &rows = rows_of(store->name);
        const Expr halves =
            Call::make(BFloat(16, kSide * kDepth), "tile_load",
                       {kSide, kDepth * BFloat(16).bytes(), rows.array, in_bytes(rows.start), in_bytes(rows.stride)},
                       Call::Intrinsic);
        return Store::make(store->name, reinterpret(store->value.type(), halves), store->index, store->param,
                           store->predicate, store->alignment);
    }

    Expr visit(const Call *call) override {
        if (call->name != "tile_store") {
            return IRMutator::visit(call);
        }
        std::vector<Expr> args = call->args;
        const Rows &rows = rows_of(args[5].as<Load>()->name);
        args[2] = rows.array;
        args[3] = in_bytes(rows.start);
        args[4] = in_bytes(rows.stride);
        return Call::make(call->type, call->name, args, call->call_type);
    }

    const Rows &rows_of(const std::string &sums) const {
        const auto rows = of_register_.find(sums);
        if (rows == of_register_.end()) {
            cannot_overlap("sums are not stored", Free::make(sums));
        }
        return rows->second;
    }

    const std::map<std::string, Rows> &of_register_;
};

Stmt rescaled(const For *state, const Places &places) {
    std::vector<Stmt> stores;
    Expr moves = const_false();
    for (const Added &vector : places.vectors()) {
        const Type type = vector.factor.type();
        const Expr index = Ramp::make(vector.index, 1, type.lanes());
        const Expr found = Load::make(type, vector.state, index, {}, {}, const_true(type.lanes()), {});
        stores.push_back(Store::make(vector.state, found * vector.factor, index, Parameter(), const_true(type.lanes()),
                                     ModulusRemainder()));
        moves = moves || VectorReduce::make(VectorReduce::Or, vector.factor != make_one(type), 1);
    }
    const Stmt loop = For::make(state->name, state->min, state->extent, ForType::Serial, Partition::Never,
                                DeviceAPI::None, Block::make(stores));
    return IfThenElse::make(simplify(moves), loop);
}

}  // namespace

SumsInPlace sums_in_place(const Stmt &products, const For *state) {
    const Places places(state);
    const StoredSums stored(products, places);
    return {rescaled(state, places), InPlace(stored.of_register).mutate(products), places.first().sums};
}

}  // namespace hattn::schedules::x86
