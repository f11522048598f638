#include "weights_beside_values.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "generators/attention_stages.h"
#include "schedules/statements.h"

namespace hattn::schedules::simd {

using namespace Halide;
using namespace Halide::Internal;

namespace {

// An array of weights: rows side by side, of one key after the other.
struct WeighedArray {
    std::string name;
    int rows;
};

// What is looked for in a statement.
class Contents : public IRVisitor {
public:
    explicit Contents(const Stmt &statement, std::string produced = "") : produced_(std::move(produced)) {
        statement.accept(this);
    }

    bool produces = false, loops = false;

private:
    using IRVisitor::visit;

    void visit(const ProducerConsumer *stage) override {
        produces = produces || (stage->is_producer && stage->name == produced_);
        IRVisitor::visit(stage);
    }

    void visit(const For *loop) override {
        loops = true;
        IRVisitor::visit(loop);
    }

    const std::string produced_;
};

bool produces(const Stmt &statement, const std::string &func) {
    return Contents(statement, func).produces;
}

// Takes out what reads an array in the stages of a Func.
class WithoutStage : public IRMutator {
public:
    explicit WithoutStage(std::string func) : func_(std::move(func)) {}

private:
    using IRMutator::visit;

    Stmt visit(const ProducerConsumer *stage) override {
        return stage->is_producer && stage->name == func_ ? Evaluate::make(0) : IRMutator::visit(stage);
    }

    const std::string func_;
};

// Where a loop over blocks begins, from outside to inside, and whether all of them are at their first pass.
struct FirstPasses {
    std::map<std::string, Expr> begins;
    Expr reached = const_true();

    FirstPasses within(const For *loop) const {
        FirstPasses inner = *this;
        inner.begins[loop->name] = substitute(begins, loop->min);
        inner.reached = reached && Variable::make(Int(32), loop->name) == loop->min;
        return inner;
    }
};

// Which key's weights the body of a loop over keys reads in the first block of rows, whose vectors have the same rows
// of all keys. Undefined if it does so in another way.
class KeyRead : public IRVisitor {
public:
    KeyRead(const Stmt &body, const WeighedArray &weights, const FirstPasses &passes)
        : weights_(weights), passes_(passes) {
        substitute_in_all_lets(body).accept(this);
    }

    Expr key;

private:
    using IRVisitor::visit;

    void visit(const Load *load) override {
        if (load->name == weights_.name && !key.defined()) {
            const Expr index = simplify(substitute(passes_.begins, load->index));
            if (const auto row = first_row(index, {}, weights_.rows)) {
                key = simplify((index.as<Ramp>()->base - *row) / weights_.rows);
            }
        }
        IRVisitor::visit(load);
    }

    const WeighedArray &weights_;
    const FirstPasses &passes_;
};

// One key's weights: as they were computed, and added to their rows' sums.
class Weighing {
public:
    Weighing(const For *loop, WeighedArray weights, std::string sums)
        : loop_(loop), weights_(std::move(weights)), sums_(std::move(sums)) {}

    // Whether they are what the pass knows: vectors of rows.
    bool is_known() const {
        return stores_rows(loop_->body);
    }

    const WeighedArray &weights() const {
        return weights_;
    }

    Expr keys() const {
        return loop_->extent;
    }

    Stmt of(const Expr &key) const {
        return added(substitute(loop_->name, key, loop_->body));
    }

    Stmt of_first_granule() const {
        return For::make(loop_->name, 0, min(keys(), generators::kGranuleKeys), ForType::Serial, Partition::Never,
                         DeviceAPI::None, of(Variable::make(Int(32), loop_->name)));
    }

private:
    bool stores_rows(const Stmt &statement) const {
        if (const auto *let = statement.as<LetStmt>()) {
            return stores_rows(let->body);
        }
        if (const auto *block = statement.as<Block>()) {
            return stores_rows(block->first) && stores_rows(block->rest);
        }
        const auto *store = statement.as<Store>();
        return store && store->name == weights_.name && row_of(store);
    }

    std::optional<int> row_of(const Store *store) const {
        return first_row(store->index, store->alignment, weights_.rows);
    }

    Stmt added(const Stmt &statement) const {
        if (const auto *let = statement.as<LetStmt>()) {
            return LetStmt::make(let->name, let->value, added(let->body));
        }
        if (const auto *block = statement.as<Block>()) {
            return Block::make(added(block->first), added(block->rest));
        }
        const auto *store = statement.as<Store>();
        const Expr value = Variable::make(store->value.type(), unique_name("weight"));
        const int lanes = value.type().lanes();
        const Expr rows = Ramp::make(*row_of(store), 1, lanes);
        const Expr sum = Load::make(value.type(), sums_, rows, {}, {}, const_true(lanes), {});
        const Stmt weighed =
            Store::make(store->name, value, store->index, store->param, store->predicate, store->alignment);
        const Stmt summed = Store::make(sums_, sum + value, rows, {}, const_true(lanes), {});
        return LetStmt::make(value.as<Variable>()->name, store->value, Block::make(weighed, summed));
    }

    const For *loop_;
    const WeighedArray weights_;
    const std::string sums_;
};

// Loops over keys of weighted values, in which the weights of as many keys behind are computed.
class Ahead : public IRMutator {
public:
    Ahead(const Weighing &weighing, const FirstPasses &passes) : weighing_(weighing), passes_(passes) {}

    bool is_known = true;

private:
    using IRMutator::visit;

    Stmt visit(const For *loop) override {
        if (!loads_from(loop->body, weighing_.weights().name) || Contents(loop->body).loops) {
            return IRMutator::visit(loop);
        }
        const Expr key = KeyRead(loop->body, weighing_.weights(), passes_).key;
        // Of a single granule Halide divides the loop itself.
        if (!key.defined() || !is_const(loop->extent, generators::kGranuleKeys)) {
            is_known = false;
            return loop;
        }
        const Expr next = simplify(key + loop->extent);
        const Stmt with_next = For::make(loop->name, loop->min, loop->extent, loop->for_type, loop->partition_policy,
                                         loop->device_api, Block::make(weighing_.of(next), loop->body));
        return IfThenElse::make(substitute(loop->name, loop->min, next) < weighing_.keys(), with_next, loop);
    }

    const Weighing &weighing_;
    const FirstPasses &passes_;
};

// A statement in which the block of weighted values that is computed first has weights beside it; when there is such a
// block; and whether all of it was of a known form.
struct FirstBlock {
    Stmt statement;
    Expr exists;
    bool is_known = true;
};

FirstBlock with_first(const Stmt &statement, const std::string &func, const Weighing &weighing,
                      const FirstPasses &passes) {
    const auto inner = [&](const Stmt &body) { return with_first(body, func, weighing, passes); };
    if (!produces(statement, func)) {
        return {statement, const_false()};
    }
    if (const auto *let = statement.as<LetStmt>()) {
        const FirstBlock body = inner(let->body);
        return {LetStmt::make(let->name, let->value, body.statement), substitute(let->name, let->value, body.exists),
                body.is_known};
    }
    if (const auto *block = statement.as<Block>()) {
        const bool first = produces(block->first, func);
        const FirstBlock part = inner(first ? block->first : block->rest);
        return {first ? Block::make(part.statement, block->rest) : Block::make(block->first, part.statement),
                part.exists, part.is_known};
    }
    if (const auto *loop = statement.as<For>()) {
        const FirstBlock body = with_first(loop->body, func, weighing, passes.within(loop));
        return {For::make(loop->name, loop->min, loop->extent, loop->for_type, loop->partition_policy, loop->device_api,
                          body.statement),
                loop->extent > 0 && substitute(loop->name, loop->min, body.exists), body.is_known};
    }
    if (const auto *choice = statement.as<IfThenElse>()) {
        const FirstBlock one = inner(choice->then_case);
        const FirstBlock other =
            choice->else_case.defined() ? inner(choice->else_case) : FirstBlock{Stmt(), const_false()};
        return {IfThenElse::make(choice->condition, one.statement, other.statement),
                select(choice->condition, one.exists, other.exists), one.is_known && other.is_known};
    }
    if (const auto *stage = statement.as<ProducerConsumer>()) {
        if (stage->is_producer && stage->name == func) {
            Ahead ahead(weighing, passes);
            const Stmt made = ahead.mutate(statement);
            return {IfThenElse::make(passes.reached, made, statement), const_true(), ahead.is_known};
        }
        const FirstBlock body = inner(stage->body);
        return {ProducerConsumer::make(stage->name, stage->is_producer, body.statement), body.exists, body.is_known};
    }
    return {statement, const_false(), false};
}

// The parts of what the array of weights is allocated for.
struct ChunkParts {
    Stmt weights, sums, values;
    std::vector<Stmt> before, between, behind;

    ChunkParts(const Stmt &body, const WeighedStages &stages) {
        for (const Stmt &part : statements_of(body)) {
            if (produces(part, stages.weights)) {
                weights = part;
            } else if (produces(part, stages.chunk_sum)) {
                sums = part;
            } else if (produces(part, stages.chunk_output)) {
                values = part;
            } else if (part.as<Free>() && weights.defined() && !values.defined()) {
                behind.push_back(part);  // what weights are computed from
            } else {
                (!weights.defined() ? before : !values.defined() ? between : behind).push_back(part);
            }
        }
    }

    // Whether weights are computed, added up and read by products, and by nothing else before those have read all.
    bool are_known(const WeighedStages &stages) const {
        if (!weights.defined() || !sums.defined() || !values.defined()) {
            return false;
        }
        bool others = loads_from(WithoutStage(stages.chunk_output).mutate(values), stages.weights);
        for (const Stmt &part : between) {
            others = others || loads_from(part, stages.weights) || loads_from(part, stages.chunk_sum);
        }
        return !others && core_of(weights).as<For>();
    }
};

}  // namespace

Stmt WeightsBesideValues::visit(const Allocate *allocation) {
    if (allocation->name != stages_.weights || is_profiled(allocation->body)) {
        return IRMutator::visit(allocation);
    }
    const ChunkParts parts(allocation->body, stages_);
    const auto rows = as_const_int(allocation->extents.front());
    if (!rows || !parts.are_known(stages_)) {
        return IRMutator::visit(allocation);
    }
    const Stmt loop = core_of(parts.weights);
    const Weighing weighing(loop.as<For>(), {stages_.weights, static_cast<int>(*rows)}, stages_.chunk_sum);
    const FirstBlock first = with_first(parts.values, stages_.chunk_output, weighing, {});
    if (!weighing.is_known() || !first.is_known) {
        return IRMutator::visit(allocation);
    }
    std::vector<Stmt> made = parts.before, apart = {parts.weights};
    for (const Stmt &part : statements_of(core_of(parts.sums))) {
        (part.as<Store>() ? made : apart).push_back(part);  // zeros, and what is added
    }
    made.push_back(IfThenElse::make(first.exists, weighing.of_first_granule(), Block::make(apart)));
    made.insert(made.end(), parts.between.begin(), parts.between.end());
    made.push_back(first.statement);
    made.insert(made.end(), parts.behind.begin(), parts.behind.end());
    return allocated_for(allocation, Block::make(made));
}

}  // namespace hattn::schedules::simd
