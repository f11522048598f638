#include "sums_at_once.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "band_parts.h"
#include "schedules/statements.h"

namespace hattn::schedules::x86 {

using namespace Halide;
using namespace Halide::Internal;

namespace {

Expr load_at(const Type &type, const std::string &array, const Expr &index) {
    return Load::make(type, array, index, {}, {}, const_true(type.lanes()), {});
}

// Of all parts those of the first pass.
class Accumulated : public IRMutator {
public:
    Accumulated(const std::string &parts, const For *loop) : parts_(parts), loop_(loop) {}

    std::vector<std::pair<Type, Expr>> indices;  // of what the passes add to

private:
    using IRMutator::visit;

    Stmt visit(const Store *store) override {
        if (store->name != parts_) {
            return IRMutator::visit(store);
        }
        const Expr first = simplify(substitute(loop_->name, loop_->min, store->index));
        indices.emplace_back(store->value.type(), first);
        return Store::make(parts_, load_at(store->value.type(), parts_, first) + store->value, first, store->param,
                           store->predicate, ModulusRemainder());
    }

    const std::string &parts_;
    const For *loop_;
};

class LoadedParts : public IRVisitor {
public:
    LoadedParts(const Stmt &statement, const std::string &parts) : parts_(parts) {
        statement.accept(this);
    }

    std::vector<Expr> indices;

private:
    using IRVisitor::visit;

    void visit(const Load *load) override {
        if (load->name == parts_) {
            indices.push_back(load->index);
        }
        IRVisitor::visit(load);
    }

    const std::string &parts_;
};

// The first pass of loops within each other.
Stmt first_pass(const Stmt &statement) {
    const Stmt inside = without_lets(statement);
    const For *loop = inside.as<For>();
    return loop ? first_pass(substitute(loop->name, loop->min, loop->body)) : simplify(inside);
}

}  // namespace

SumsAtOnce sums_at_once(const std::string &parts, const For *stored, const For *summed) {
    Accumulated accumulated(parts, stored);
    const Stmt passes = For::make(stored->name, stored->min, stored->extent, stored->for_type, stored->partition_policy,
                                  stored->device_api, accumulated.mutate(substitute_in_all_lets(stored->body)));
    std::vector<Stmt> zeros;
    for (const auto &[type, index] : accumulated.indices) {
        zeros.push_back(
            Store::make(parts, make_zero(type), index, Parameter(), const_true(type.lanes()), ModulusRemainder()));
    }
    const Stmt once = first_pass(summed);
    const LoadedParts loaded(once, parts);
    const bool are_same =
        zeros.size() == loaded.indices.size() && std::ranges::all_of(loaded.indices, [&](const Expr &index) {
            return std::ranges::any_of(accumulated.indices,
                                       [&](const auto &first) { return equal(first.second, index); });
        });
    if (!are_same) {
        cannot_overlap("parts of sums are added up otherwise than one after the other", summed);
    }
    return {Block::make(zeros), passes, once};
}

}  // namespace hattn::schedules::x86
