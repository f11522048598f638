#include "own_slots.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace hattn::schedules {

using namespace Halide;
using namespace Halide::Internal;

namespace {

bool is_constant(const Expr &index) {
    const Ramp *ramp = index.as<Ramp>();
    return ramp ? is_constant(ramp->base) && is_const(ramp->stride) : is_const(index);
}

// Which arrays LLVM can keep in registers: those on the stack, whatever statement allocates them, all of whose indices
// are constant.
class ConstantlyIndexed : public IRVisitor {
public:
    std::set<std::string> names() const {
        std::set<std::string> names;
        std::set_difference(on_stack_.begin(), on_stack_.end(), others_.begin(), others_.end(),
                            std::inserter(names, names.end()));
        return names;
    }

private:
    using IRVisitor::visit;

    void visit(const Load *load) override {
        note(load->name, load->index);
        IRVisitor::visit(load);
    }

    void visit(const Store *store) override {
        note(store->name, store->index);
        IRVisitor::visit(store);
    }

    // An address, which who is given it may index.
    void visit(const Variable *variable) override {
        if (variable->type.is_handle()) {
            others_.insert(variable->name);
        }
    }

    void visit(const Allocate *allocation) override {
        (is_on_stack(*allocation) ? on_stack_ : others_).insert(allocation->name);
        IRVisitor::visit(allocation);
    }

    void note(const std::string &name, const Expr &index) {
        if (!is_constant(index)) {
            others_.insert(name);
        }
    }

    static bool is_on_stack(const Allocate &allocation) {
        const bool may_be = allocation.memory_type == MemoryType::Auto || allocation.memory_type == MemoryType::Stack;
        const int64_t elements = allocation.constant_allocation_size();
        return may_be && !allocation.new_expr.defined() && is_const_one(allocation.condition) && elements > 0 &&
               can_allocation_fit_on_stack(elements * allocation.type.bytes());
    }

    std::set<std::string> on_stack_, others_;
};

// Takes out the allocations of some arrays.
class TakenAllocations : public IRMutator {
public:
    explicit TakenAllocations(std::set<std::string> names) : names_(std::move(names)) {}

    // Allocates them around a statement.
    Stmt around(Stmt body) const {
        for (const auto &[name, array] : taken_) {
            body = Allocate::make(name, array.type, array.memory, {array.elements}, const_true(), body, Expr(), "",
                                  array.padding);
        }
        return body;
    }

private:
    using IRMutator::visit;

    // Loops that are partitioned allocate an array once for each part.
    struct Array {
        Type type;
        MemoryType memory;
        int elements = 0, padding = 0;
    };

    Stmt visit(const Allocate *allocation) override {
        if (!names_.contains(allocation->name)) {
            return IRMutator::visit(allocation);
        }
        Array &array = taken_[allocation->name];
        array.type = allocation->type;
        array.memory = allocation->memory_type;
        array.elements = std::max(array.elements, allocation->constant_allocation_size());
        array.padding = std::max(array.padding, allocation->padding);
        return mutate(allocation->body);
    }

    Stmt visit(const Free *freed) override {
        return names_.contains(freed->name) ? Evaluate::make(0) : Stmt(freed);
    }

    std::set<std::string> names_;
    std::map<std::string, Array> taken_;
};

}  // namespace

Stmt OwnSlots::mutate(const Stmt &statement) {
    ConstantlyIndexed constantly;
    statement.accept(&constantly);
    TakenAllocations taken(constantly.names());
    const Stmt body = taken.mutate(statement);
    return taken.around(body);
}

}  // namespace hattn::schedules
