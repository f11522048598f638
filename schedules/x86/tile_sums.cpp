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
    Rows rows{Variable::make(Handle(), array), at(index, row, 0), {}};
    rows.stride = simplify(at(index, row, step) - rows.start);
    for (int number = step; number <= last; number += step) {
        if (!is_zero_everywhere(at(index, row, number) - rows.start - rows.stride * (number / step))) {
            refuse("its rows are not evenly spaced", statement);
        }
    }
    return rows;
}

// Of a dense vector of so many numbers the index of the first.
std::optional<Expr> first_of(const Expr &index, int lanes) {
    const Ramp *ramp = index.as<Ramp>();
    return ramp && ramp->lanes == lanes && is_const_one(ramp->stride) ? std::optional(ramp->base) : std::nullopt;
}

// Of numbers that are multiplied, or of the bits of such.
class Loads : public IRVisitor {
public:
    Loads(const Expr &value, const MatrixNumbers &of) : of_(of) {
        value.accept(this);
    }
    std::vector<const Load *> scalars, groups;
    std::vector<const Load *> words;  // scalars of 32 bits, of which `shift` takes bytes
    Expr shift;
    Expr skipped = 0;          // of a group, numbers that are loaded before those that are multiplied
    bool are_changed = false;  // on their way from memory, or taken for other numbers
    Expr condition;            // that chooses between two scalars, or undefined

private:
    using IRVisitor::visit;

    void visit(const Load *load) override {
        if (load->type.bits() == of_.type.bits()) {
            (load->type.is_scalar() ? scalars : groups).push_back(load);
        } else if (load->type == UInt(32)) {
            words.push_back(load);
        }
    }

    void visit(const Call *call) override {
        if (call->is_intrinsic(Call::shift_right)) {
            are_changed = are_changed || shift.defined();
            shift = call->args[1];
        } else {
            // As Halide writes the sum and the product of integers.
            are_changed = are_changed || !call->is_intrinsic({Call::widen_right_add, Call::widening_mul});
        }
        for (const Expr &argument : call->args) {
            are_changed = are_changed || argument.type().element_of() == UInt(8);
        }
        IRVisitor::visit(call);
    }

    // Bytes have signs.
    void visit(const Cast *cast) override {
        are_changed = are_changed || (cast->value.type().element_of() == UInt(8) && cast->type.bits() > 8);
        IRVisitor::visit(cast);
    }

    // One of each group, the same one.
    void visit(const Shuffle *shuffle) override {
        const int first = shuffle->indices.front();
        for (size_t i = 0; i < shuffle->indices.size(); ++i) {
            are_changed = are_changed || shuffle->indices[i] != first + static_cast<int>(i) * of_.beside();
        }
        skipped = first;
        IRVisitor::visit(shuffle);
    }

    void visit(const Select *select) override {
        condition = select->condition;
        select->true_value.accept(this);
        select->false_value.accept(this);
    }

    const MatrixNumbers of_;
};

// The one or the other, both of which go on in the same way from block to block.
Rows chosen_rows(const Expr &condition, const Rows &one, const Rows &other, const std::string &block,
                 const MatrixNumbers &of, const Stmt &statement) {
    const auto of_first = [&](const Rows &rows) { return at(rows.start, block, 0); };
    const auto address = [&](const Rows &rows) {
        return reinterpret<uint64_t>(rows.array) + cast<uint64_t>(cast<int64_t>(of_first(rows)) * of.type.bytes());
    };
    const Expr start = simplify(one.start - of_first(one));
    if (!is_zero_everywhere(other.start - of_first(other) - start) || expr_uses_var(condition, block)) {
        refuse("its left side is chosen block by block", statement);
    }
    return {reinterpret(Handle(), select(condition, address(one), address(other))), start,
            select(condition, one.stride, other.stride)};
}

// Bytes of words of 32 bits.
Rows rows_of_words(const Load &words, const Expr &shift, const std::string &row, const std::string &element,
                   const MatrixNumbers &of, const Stmt &statement) {
    const Expr first = at(words.index, element, 0);
    for (int i = 0; i < of.depth(); ++i) {
        const int of_word = i % of.beside();
        if (!is_const(simplify(at(words.index, element, i) - first), i / of.beside()) || !shift.defined() ||
            !is_const(at(shift, element, i), of_word * of.type.bits())) {
            refuse("its left side is of words in another way", statement);
        }
    }
    Rows rows = rows_of(words.name, first, row, kSide - 1, 1, statement);
    rows.start = simplify(rows.start * of.beside());
    rows.stride = simplify(rows.stride * of.beside());
    return rows;
}

const For *fixed_loop(const Stmt &statement, int extent) {
    const For *loop = statement.as<For>();
    return loop && is_const_zero(loop->min) && is_const(loop->extent, extent) ? loop : nullptr;
}

// for (row, 16) for (element, 32; of bytes 64) if (condition) sums[row] += left[row, element] * right[element]
void take_product(const Stmt &statement, Sums &sums) {
    const int depth = sums.of.depth(), beside = sums.of.beside();
    const For *row = fixed_loop(statement, kSide);
    const Stmt of_row = row ? without_lets(row->body) : Stmt();
    const For *element = row ? fixed_loop(of_row, depth) : nullptr;
    Stmt of_element = element ? without_lets(element->body) : Stmt();
    if (const IfThenElse *some = element ? of_element.as<IfThenElse>() : nullptr; some && !some->else_case.defined()) {
        sums.condition = at(at(some->condition, row->name, 0), element->name, 0);
        of_element = without_lets(Stmt(some->then_case));
    }
    const Store *store = element ? of_element.as<Store>() : nullptr;
    if (!store || store->name != sums.name) {
        refuse("no loop over 16 rows and 32 elements, or 64 bytes", statement);
    }
    const Loads loads(substitute_in_all_lets(store->value), sums.of);
    const size_t choices = loads.condition.defined() ? 2 : 1;
    const bool in_words = sums.of.type == Int(8) && loads.scalars.empty() && loads.words.size() == 1;
    const auto loaded = loads.groups.size() == 1 ? first_of(loads.groups[0]->index, beside * kSide) : std::nullopt;
    if ((!in_words && loads.scalars.size() != choices) || !loaded) {
        refuse("no product of one number and of pairs, or of fours of bytes", statement);
    }
    if (loads.are_changed || loads.shift.defined() != in_words) {
        refuse("its numbers are others than those in memory", statement);
    }
    const Expr group = simplify(*loaded + loads.skipped);
    const auto is_behind = [&](int first, int second) {
        return is_const(simplify(at(group, element->name, second) - at(group, element->name, first)), second - first);
    };
    if (!is_behind(depth - beside, depth - 1) || expr_uses_var(group, row->name)) {
        refuse("its right side is laid out in another way", statement);
    }
    std::vector<Rows> left;
    for (const Load *scalar : loads.scalars) {
        const Expr first = at(scalar->index, element->name, 0);
        if (!is_const(simplify(at(scalar->index, element->name, depth - 1) - first), depth - 1)) {
            refuse("its left side is laid out in another way", statement);
        }
        left.push_back(rows_of(scalar->name, first, row->name, kSide - 1, 1, statement));
    }
    if (in_words) {
        left.push_back(rows_of_words(*loads.words[0], loads.shift, row->name, element->name, sums.of, statement));
    }
    if (choices == 2 && (expr_uses_var(loads.condition, row->name) || expr_uses_var(loads.condition, element->name))) {
        refuse("its left side is chosen row by row", statement);
    }
    const auto chosen = [&] {
        const std::string block = sums.loops.empty() ? "" : sums.loops.back().as<For>()->name;
        return chosen_rows(loads.condition, left[0], left[1], block, sums.of, statement);
    };
    sums.products.push_back({choices == 1 ? left[0] : chosen(),
                             rows_of(loads.groups[0]->name, group, element->name, depth - beside, beside, statement)});
}

// Such loops one after the other, in loops over blocks of elements.
void take_products(const Stmt &statement, Sums &sums) {
    const Stmt inside = without_lets(statement);
    const For *loop = inside.as<For>();
    if (is_profiling(inside)) {
        return;
    }
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
        if (fixed_loop(of_row, sums.of.depth())) {
            if (!sums.loops.empty()) {
                refuse("a product behind a loop over blocks", inside);
            }
            take_product(inside, sums);
            if (sums.condition.defined()) {
                refuse("a condition on no block", inside);
            }
        } else if (!store || store->name != sums.name) {
            take_stores(loop, sums);
        } else if (!is_const_zero(store->value)) {
            refuse("it does not begin at zero", inside);
        }
    } else if (inside.as<For>()) {
        take_products(inside, sums);
    } else if (!inside.as<Free>() && !is_profiling(inside)) {
        refuse("another statement", inside);
    }
}

}  // namespace

Sums sums_of(const Allocate *tile) {
    const bool of_bytes = tile->type.element_of() == Int(32);
    Sums sums{.name = tile->name, .of = {of_bytes ? Int(8) : BFloat(16), of_bytes ? Int(32) : Float(32)}};
    take(tile->body, sums);
    if (sums.products.empty() || !sums.stored.array.defined()) {
        refuse("nothing is added, or nothing stored", tile);
    }
    return sums;
}

}  // namespace hattn::schedules::x86
