#include "maxima_beside_scores.h"

#include <map>
#include <utility>
#include <vector>

#include "schedules/statements.h"

namespace hattn::schedules::simd {

using namespace Halide;
using namespace Halide::Internal;

namespace {

// Where an array is set to constants, by the first row of a vector.
class Constants : public IRVisitor {
public:
    Constants(const Stmt &statement, const std::string &array, int rows) : array_(array), rows_(rows) {
        statement.accept(this);
    }

    std::map<int, Expr> places;
    bool others = false;  // what is stored is not constant, or its row is not known

private:
    using IRVisitor::visit;

    void visit(const Store *store) override {
        const auto row = first_row(store->index, store->alignment, rows_);
        if (store->name == array_ && row && is_const(store->value)) {
            places[*row] = store->index;
        } else {
            others = true;
        }
    }

    const std::string &array_;
    const int rows_;
};

// Where the maxima of a chunk are, by the first row of a vector, and the statement that sets them to the least.
struct FirstMaxima {
    std::map<int, Expr> places;
    Stmt set;

    FirstMaxima(const ProducerConsumer *maxima, int rows) {
        std::vector<Stmt> setting;
        for (Stmt part : statements_of(core_of(maxima->body))) {
            part = without_lets(part);
            if (const auto *loop = part.as<For>()) {  // over chunks, of which there is one
                part = substitute(loop->name, loop->min, loop->body);
            }
            const Constants constants(part, maxima->name, rows);
            if (constants.others) {
                break;
            }
            places.insert(constants.places.begin(), constants.places.end());
            setting.push_back(part);
        }
        set = setting.empty() ? Evaluate::make(0) : Block::make(setting);
    }
};

// Scores that are stored are compared with maxima, but where limits mask them: the condition of that.
class Compared : public IRMutator {
public:
    Compared(ScoredStages stages, const std::map<int, Expr> &places, int rows)
        : stages_(std::move(stages)), places_(places), rows_(rows) {}

    Expr cut;
    bool is_known = true;

private:
    using IRMutator::visit;

    Stmt visit(const LetStmt *let) override {
        const Stmt body = mutate(let->body);
        if (cut.defined()) {
            cut = substitute(let->name, let->value, cut);
        }
        return LetStmt::make(let->name, let->value, body);
    }

    Stmt visit(const IfThenElse *choice) override {
        if (in_loop_ || !stores_in(choice->then_case, stages_.logits)) {
            return IRMutator::visit(choice);
        }
        is_known = is_known && !choice->else_case.defined() && !cut.defined();
        cut = choice->condition;
        return choice;
    }

    Stmt visit(const For *loop) override {
        const bool outer = std::exchange(in_loop_, true);
        const Stmt made = IRMutator::visit(loop);
        in_loop_ = outer;
        return made;
    }

    Stmt visit(const Store *store) override {
        if (store->name != stages_.logits) {
            return IRMutator::visit(store);
        }
        const auto row = first_row(store->index, store->alignment, rows_);
        const auto place = row ? places_.find(*row) : places_.end();
        if (place == places_.end()) {
            is_known = false;
            return store;
        }
        const Type type = store->value.type();
        const Expr score = Variable::make(type, unique_name("score"));
        const Expr always = const_true(type.lanes());
        const Expr before = Load::make(type, stages_.chunk_max, place->second, {}, {}, always, {});
        const Stmt stored =
            Store::make(store->name, score, store->index, store->param, store->predicate, store->alignment);
        const Stmt compared = Store::make(stages_.chunk_max, max(before, score), place->second, {}, always, {});
        return LetStmt::make(score.as<Variable>()->name, store->value, Block::make(stored, compared));
    }

    const ScoredStages stages_;
    const std::map<int, Expr> &places_;
    const int rows_;
    bool in_loop_ = false;
};

const ProducerConsumer *producer(const Stmt &statement, const std::string &func) {
    const auto *stage = statement.as<ProducerConsumer>();
    return stage && stage->is_producer && stage->name == func ? stage : nullptr;
}

}  // namespace

Stmt MaximaBesideScores::visit(const Allocate *allocation) {
    const auto rows = allocation->name == stages_.logits ? as_const_int(allocation->extents.front()) : std::nullopt;
    if (!rows || is_profiled(allocation->body)) {
        return IRMutator::visit(allocation);
    }
    std::vector<Stmt> parts = statements_of(allocation->body);
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto *scores = producer(parts[i], stages_.logits), *maxima = producer(parts[i + 1], stages_.chunk_max);
        if (!scores || !maxima) {
            continue;
        }
        const FirstMaxima first(maxima, static_cast<int>(*rows));
        Compared compared(stages_, first.places, static_cast<int>(*rows));
        const Stmt made = compared.mutate(parts[i]);
        if (!compared.is_known || !compared.cut.defined()) {
            break;
        }
        parts[i] = Block::make(first.set, made);
        parts[i + 1] = IfThenElse::make(compared.cut, parts[i + 1]);
        return allocated_for(allocation, Block::make(parts));
    }
    return IRMutator::visit(allocation);
}

}  // namespace hattn::schedules::simd
