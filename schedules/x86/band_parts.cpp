#include "band_parts.h"

#include <sstream>
#include <stdexcept>
#include <utility>

#include "schedules/statements.h"
#include "sums_at_once.h"
#include "sums_in_place.h"
#include "tile_sums.h"

namespace hattn::schedules::x86 {

using namespace Halide;
using namespace Halide::Internal;

[[noreturn]] void cannot_overlap(const char *what, const Stmt &statement) {
    std::ostringstream text;
    text << "bands of rows cannot be overlapped: " << what << ", in " << statement;
    throw std::runtime_error(text.str());
}

bool is_room(const Call *call) {
    return call && call->name == kRoomCall;
}

void Contents::visit(const For *loop) {
    loops = true;
    IRVisitor::visit(loop);
}

void Contents::visit(const Allocate *allocation) {
    sums = sums || allocation->memory_type == MemoryType::AMXTile;
    IRVisitor::visit(allocation);
}

void Contents::visit(const Call *call) {
    rooms += is_room(call) ? 1 : 0;
    if (call->name == "tile_store") {
        products.insert(call->args[2].as<Variable>()->name);
    }
    IRVisitor::visit(call);
}

Stmt only_if(const Expr &condition, const Stmt &statement) {
    return condition.defined() ? IfThenElse::make(condition, statement) : statement;
}

namespace {

// Arrays that a statement stores in.
class Stored : public IRVisitor {
public:
    explicit Stored(const Stmt &statement) {
        statement.accept(this);
    }

    std::set<std::string> arrays;

private:
    using IRVisitor::visit;

    void visit(const Store *store) override {
        arrays.insert(store->name);
        IRVisitor::visit(store);
    }
};

Expr both(const Expr &one, const Expr &other) {
    return one.defined() ? one && other : other;
}

bool is_of(const Part &part, const std::string &func, int stage) {
    return part.loop() && part.loop()->name.starts_with(func + ".s" + std::to_string(stage) + ".");
}

bool has_products(const Part &part) {
    return Contents(part.statement).sums;
}

// Of arrays that are there twice, the second one if it is an odd band's.
class Doubled : public IRMutator {
public:
    Doubled(const std::map<std::string, Expr> &sizes, Expr odd) : sizes_(sizes), odd_(std::move(odd)) {}

private:
    using IRMutator::visit;

    Expr behind(const std::string &array, const Expr &index, int element_bytes) const {
        const auto size = sizes_.find(array);
        if (size == sizes_.end()) {
            return index;
        }
        const Expr by = odd_ * (size->second * element_bytes);
        return simplify(index + (index.type().is_scalar() ? by : Broadcast::make(by, index.type().lanes())));
    }

    Expr visit(const Load *load) override {
        return Load::make(load->type, load->name, behind(load->name, mutate(load->index), 1), load->image, load->param,
                          mutate(load->predicate), ModulusRemainder());
    }

    Stmt visit(const Store *store) override {
        return Store::make(store->name, mutate(store->value), behind(store->name, mutate(store->index), 1),
                           store->param, mutate(store->predicate), ModulusRemainder());
    }

    // Whose starts are in bytes.
    Expr visit(const Call *call) override {
        if (call->name != "tile_store" && call->name != "tile_load") {
            return IRMutator::visit(call);
        }
        std::vector<Expr> args = call->args;
        const Type type = call->name == "tile_store" ? Float(32) : BFloat(16);
        if (const Variable *array = args[2].as<Variable>()) {
            args[3] = behind(array->name, args[3], type.bytes());
        }
        return Call::make(call->type, call->name, args, call->call_type);
    }

    const std::map<std::string, Expr> &sizes_;
    const Expr odd_;
};

class WithoutFrees : public IRMutator {
public:
    explicit WithoutFrees(const std::vector<Stmt> &allocations) {
        for (const Stmt &each : allocations) {
            arrays_.insert(each.as<Allocate>()->name);
        }
    }

private:
    using IRMutator::visit;

    Stmt visit(const Free *freed) override {
        return arrays_.contains(freed->name) ? Evaluate::make(0) : IRMutator::visit(freed);
    }

    std::set<std::string> arrays_;
};

}  // namespace

Band::Band(const For *loop, const BandStages &stages) : loop_(loop) {
    read(loop->body, {});
    take_roles(stages);
}

template<typename T>
T Band::in_band(const T &code, const Expr &band) const {
    return substitute(loop_->name, simplify(loop_->min + band), code);
}

std::pair<Expr, Expr> Band::seen_passes(const Expr &band) const {
    constexpr int kPairs = kDepth / 2;
    const Expr first = in_band(first_block_, band) * kPairs;
    return {first, first + max(in_band(blocks_, band), 0) * kPairs};
}

Part Band::of(const Part &part, const Expr &band) const {
    return {Doubled(doubled_, band % 2).mutate(in_band(part.statement, band)),
            part.condition.defined() ? in_band(part.condition, band) : Expr()};
}

Stmt Band::statement_of(const Part &part, const Expr &band) const {
    const Part own = of(part, band);
    return only_if(own.condition, own.statement);
}

Stmt Band::all_of(const std::vector<Part> &parts, const Expr &band) const {
    std::vector<Stmt> statements = {Evaluate::make(0)};
    for (const Part &part : parts) {
        statements.push_back(statement_of(part, band));
    }
    return Block::make(statements);
}

Stmt Band::allocated(Stmt statement) const {
    statement = WithoutFrees(allocations_).mutate(statement);
    for (auto each = allocations_.rbegin(); each != allocations_.rend(); ++each) {
        const Allocate *allocation = each->as<Allocate>();
        std::vector<Expr> extents = allocation->extents;
        if (doubled_.contains(allocation->name)) {
            extents.emplace_back(2);
        }
        statement = Allocate::make(allocation->name, allocation->type, allocation->memory_type, extents, const_true(),
                                   statement);
    }
    return statement;
}

// Lets around loops are substituted; what else they are around stays as it is.
void Band::read(const Stmt &statement, const Expr &condition) {
    if (const LetStmt *let = statement.as<LetStmt>(); let && Contents(let->body).loops) {
        read(without_lets(statement), condition);
    } else if (const Block *block = statement.as<Block>()) {
        read(block->first, condition);
        read(block->rest, condition);
    } else if (const ProducerConsumer *stage = statement.as<ProducerConsumer>()) {
        read(stage->body, condition);
    } else if (const Allocate *allocation = statement.as<Allocate>();
               allocation && allocation->memory_type != MemoryType::AMXTile) {
        allocations_.push_back(statement);
        read(allocation->body, condition);
    } else if (const IfThenElse *some = statement.as<IfThenElse>(); some && !some->else_case.defined()) {
        read(some->then_case, both(condition, some->condition));
    } else if (!statement.as<Free>()) {
        parts_.push_back({statement, condition});
    }
}

void Band::take_roles(const BandStages &stages) {
    auto part = parts_.begin();
    const auto next = [&](const char *what) -> Part {
        if (part == parts_.end()) {
            cannot_overlap(what, loop_);
        }
        return *part++;
    };
    // Operands of hooks, which are for what becomes of scores.
    while (part != parts_.end() && !has_products(*part)) {
        maxima.push_back(*part++);
    }
    scores = next("no scores");
    while (part != parts_.end() && !is_of(*part, stages.weights, 0)) {
        maxima.push_back(*part++);
    }
    weights = next("no weights");
    values = next("no weighted values");
    if (!has_products(values)) {
        cannot_overlap("no products after weights", weights.statement);
    }
    for (; part != parts_.end(); ++part) {
        if (is_of(*part, stages.state, 1)) {
            if (state.statement.defined()) {
                cannot_overlap("the state is added to twice", part->statement);
            }
            state = *part;
        } else {
            sums.push_back(*part);
        }
    }
    if (!state.statement.defined()) {
        cannot_overlap("no state", loop_);
    }
    take_seen(stages.unseen);
    take_sums(stages.pair_sums);
    if (stages.adds_in_place) {
        const SumsInPlace in_place = sums_in_place(values.statement, state.loop());
        values.statement = in_place.products;
        rescaled = {in_place.rescaled, state.condition};
        state = {};
        std::erase_if(allocations_, [&](const Stmt &each) { return each.as<Allocate>()->name == in_place.sums; });
    }
    // What is read of a band when the next one's is there: products, terms, and what the state is multiplied by.
    std::set<std::string> arrays = Contents(scores.statement).products;
    arrays.merge(Contents(values.statement).products);
    arrays.merge(Stored(weights.statement).arrays);
    arrays.insert(stages.rescale);
    double_arrays(arrays);
}

// Passes are as many as there are pairs of keys. Halide has loops begin at zero, and adds where they began to indices.
void Band::take_seen(const std::string &unseen) {
    class AroundRooms : public IRVisitor {
    public:
        explicit AroundRooms(const std::string &unseen) : unseen_(unseen) {}

        Expr first, blocks;
        bool is_one = true;  // `first`, wherever it is read

    private:
        using IRVisitor::visit;

        void visit(const For *loop) override {
            if (Contents(loop->body).rooms > 0) {
                blocks = is_const_zero(loop->min) ? loop->extent : Expr();
            }
            IRVisitor::visit(loop);
        }

        void visit(const Load *load) override {
            if (load->name == unseen_) {
                is_one = is_one && (!first.defined() || equal(first, load));
                first = load;
            }
            IRVisitor::visit(load);
        }

        const std::string &unseen_;
    };
    AroundRooms around(unseen);
    substitute_in_all_lets(values.statement).accept(&around);
    const bool is_known = around.blocks.defined() && around.first.defined() && around.is_one;
    if (!is_known || !is_const_zero(weights.loop()->min)) {
        cannot_overlap("no blocks of keys from the first that is seen", loop_);
    }
    first_block_ = around.first;
    blocks_ = around.blocks;
}

void Band::take_sums(const std::string &pair_sums) {
    for (Part &part : sums) {
        if (!part.loop() || !loads_from(part.statement, pair_sums)) {
            continue;
        }
        const SumsAtOnce at_once = sums_at_once(pair_sums, weights.loop(), part.loop());
        weights.statement = at_once.stored;
        part.statement = at_once.summed;
        zeroed = {at_once.zeroed, {}};
        return;
    }
    cannot_overlap("no sums of weights", loop_);
}

void Band::double_arrays(const std::set<std::string> &arrays) {
    for (const Stmt &each : allocations_) {
        const Allocate *allocation = each.as<Allocate>();
        if (arrays.contains(allocation->name)) {
            Expr size = 1;
            for (const Expr &extent : allocation->extents) {
                size = simplify(size * extent);
            }
            doubled_[allocation->name] = size;
        }
    }
}

}  // namespace hattn::schedules::x86
