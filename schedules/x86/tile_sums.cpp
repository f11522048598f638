#include "tile_sums.h"

#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "schedules/statements.h"

namespace hattn::schedules::x86 {

using namespace Halide;
using namespace Halide::Internal;

[[noreturn]] void refuse(const char *what, const Stmt &statement) {
    std::ostringstream text;
    text << "a tile of sums is used in another way than to be set to zero, added to in a loop and stored: " << what
         << ", in " << statement;
    throw std::runtime_error(text.str());
}

namespace {

Expr at(const Expr &index, const std::string &variable, int value) {
    return simplify(substitute(variable, value, index));
}

// A difference of products of several variables, which the simplifier does not multiply out: by example.
class Example : public IRMutator {
    using IRMutator::visit;

    Expr visit(const Variable *variable) override {
        const auto known = values_.find(variable->name);
        if (known != values_.end()) {
            return known->second;
        }
        next_ = next_ * 37 % 1009;
        return values_[variable->name] = make_const(variable->type, next_);
    }

    std::map<std::string, Expr> values_;
    int next_ = 11;
};

bool is_zero_everywhere(const Expr &difference) {
    return is_const_zero(simplify(Example().mutate(difference)));
}

Rows rows_of(const std::string &array, const Expr &index, const std::string &row, int last, int step,
             const Stmt &statement) {
    Rows rows{array, at(index, row, 0), {}};
    rows.stride = simplify(at(index, row, step) - rows.start);
    if (!is_zero_everywhere(at(index, row, last) - rows.start - rows.stride * (last / step))) {
        refuse("its rows are not evenly spaced", statement);
    }
    return rows;
}

// Of a dense vector of so many numbers the index of the first.
std::optional<Expr> first_of(const Expr &index, int lanes) {
    const Ramp *ramp = index.as<Ramp>();
    return ramp && ramp->lanes == lanes && is_const_one(ramp->stride) ? std::optional(ramp->base) : std::nullopt;
}

class Loads : public IRVisitor {
public:
    explicit Loads(const Expr &value) {
        value.accept(this);
    }
    const Load *scalar = nullptr, *pairs = nullptr;
    int count = 0;

private:
    using IRVisitor::visit;

    void visit(const Load *load) override {
        if (load->type.element_of() == BFloat(16)) {
            (load->type.is_scalar() ? scalar : pairs) = load;
            ++count;
        }
    }
};

const For *fixed_loop(const Stmt &statement, int extent) {
    const For *loop = statement.as<For>();
    return loop && is_const_zero(loop->min) && is_const(loop->extent, extent) ? loop : nullptr;
}

// for (row, 16) for (element, 32) if (condition) sums[row] += left[row, element] * right[element]
void take_product(const Stmt &statement, Sums &sums) {
    const For *row = fixed_loop(statement, kSide);
    const Stmt of_row = row ? without_lets(row->body) : Stmt();
    const For *element = row ? fixed_loop(of_row, kDepth) : nullptr;
    Stmt of_element = element ? without_lets(element->body) : Stmt();
    if (const IfThenElse *some = element ? of_element.as<IfThenElse>() : nullptr; some && !some->else_case.defined()) {
        sums.condition = at(at(some->condition, row->name, 0), element->name, 0);
        of_element = without_lets(Stmt(some->then_case));
    }
    const Store *store = element ? of_element.as<Store>() : nullptr;
    if (!store || store->name != sums.name) {
        refuse("no loop over 16 rows and 32 elements", statement);
    }
    const Loads loads(substitute_in_all_lets(store->value));
    const auto pairs = loads.pairs ? first_of(loads.pairs->index, 2 * kSide) : std::nullopt;
    if (loads.count != 2 || !loads.scalar || !pairs) {
        refuse("no product of one number and of pairs", statement);
    }
    const Expr left = at(loads.scalar->index, element->name, 0);
    const Expr next = simplify(at(loads.scalar->index, element->name, kDepth - 1) - left);
    const Expr beside = simplify(at(*pairs, element->name, kDepth - 1) - at(*pairs, element->name, kDepth - 2));
    if (!is_const(next, kDepth - 1) || !is_const_one(beside) || expr_uses_var(*pairs, row->name)) {
        refuse("its sides are laid out in another way", statement);
    }
    sums.products.push_back({rows_of(loads.scalar->name, left, row->name, kSide - 1, 1, statement),
                             rows_of(loads.pairs->name, *pairs, element->name, kDepth - 2, 2, statement)});
}

// Such loops one after the other, in loops over blocks of elements.
void take_products(const Stmt &statement, Sums &sums) {
    const Stmt inside = without_lets(statement);
    const For *loop = inside.as<For>();
    if (const Block *block = inside.as<Block>()) {
        take_products(block->first, sums);
        take_products(block->rest, sums);
    } else if (loop && !fixed_loop(inside, kSide)) {
        if (!sums.products.empty()) {
            refuse("loops over blocks one after the other", inside);
        }
        sums.loops.push_back(inside);
        take_products(loop->body, sums);
    } else {
        take_product(inside, sums);
    }
}

void take_stores(const For *row, Sums &sums) {
    const Stmt inside = without_lets(row->body);
    const Store *store = inside.as<Store>();
    const Load *load = store ? store->value.as<Load>() : nullptr;
    const auto first = store ? first_of(store->index, kSide) : std::nullopt;
    if (!first || !load || load->name != sums.name || !is_const_one(store->predicate)) {
        refuse("no loop that stores its rows", row);
    }
    sums.stored = rows_of(store->name, *first, row->name, kSide - 1, 1, row);
}

void take(const Stmt &statement, Sums &sums) {
    const Stmt inside = without_lets(statement);
    if (const Block *block = inside.as<Block>()) {
        take(block->first, sums);
        take(block->rest, sums);
    } else if (const ProducerConsumer *stage = inside.as<ProducerConsumer>()) {
        take(stage->body, sums);
    } else if (const For *loop = fixed_loop(inside, kSide)) {
        const Stmt of_row = without_lets(loop->body);
        const Store *store = of_row.as<Store>();
        if (!store || store->name != sums.name) {
            take_stores(loop, sums);
        } else if (!is_const_zero(store->value)) {
            refuse("it does not begin at zero", inside);
        }
    } else if (inside.as<For>()) {
        take_products(inside, sums);
    } else if (!inside.as<Free>()) {
        refuse("another statement", inside);
    }
}

}  // namespace

Sums sums_of(const Allocate *tile) {
    Sums sums{.name = tile->name};
    take(tile->body, sums);
    if (sums.products.empty() || sums.stored.array.empty()) {
        refuse("nothing is added, or nothing stored", tile);
    }
    return sums;
}

}  // namespace hattn::schedules::x86
