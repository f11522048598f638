#include "typed_loops.h"

#include <algorithm>

#include "generators/stored_side.h"

namespace hattn::schedules::gpu {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kWordBits = 32, kWords = 4;  // of a load

bool contains(const std::vector<std::string> &names, const std::string &name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// Loops of a thread over rows, unrolled, with all that they load from them first: vectors of a row as words that are
// known to be aligned.
class RowsFirst : public IRMutator {
public:
    RowsFirst(const std::vector<std::string> &rows, int vector) : rows_(rows), vector_(vector) {}

private:
    using IRMutator::visit;

    Stmt visit(const LetStmt *let) override {
        return in_loop_ && is_pure(let->value) ? mutate(substitute(let->name, let->value, let->body))
                                               : IRMutator::visit(let);
    }

    Stmt visit(const For *loop) override {
        const auto count = as_const_int(loop->extent);
        if (in_loop_ || loop->for_type != ForType::Serial || !count || !loads_rows(loop->body)) {
            return IRMutator::visit(loop);
        }
        in_loop_ = true;
        std::vector<Stmt> turns;
        for (int64_t turn = 0; turn < *count; ++turn) {
            const Expr at = simplify(loop->min + static_cast<int32_t>(turn));
            turns.push_back(mutate(simplify(substitute(loop->name, at, loop->body))));
        }
        Stmt result = Block::make(turns);
        for (size_t i = loads_.size(); i-- > 0;) {
            result = LetStmt::make(loads_[i].first, loads_[i].second, result);
        }
        in_loop_ = false;
        loads_.clear();
        return result;
    }

    Expr visit(const Load *load) override {
        const bool of_row = in_loop_ && contains(rows_, load->name) && is_const_one(load->predicate);
        const Expr index = of_row ? simplify(substitute_in_all_lets(load->index)) : Expr();
        const Ramp *ramp = index.defined() ? index.as<Ramp>() : nullptr;
        if (!ramp || ramp->lanes != vector_ || !is_const_one(ramp->stride)) {
            return IRMutator::visit(load);
        }
        const int per_word = kWordBits / load->type.bits(), words = vector_ / per_word;
        const int at_once = std::min(words, kWords);
        const Type type = UInt(kWordBits, at_once);
        std::vector<Expr> parts;
        for (int word = 0; word < words; word += at_once) {
            const Expr at = Ramp::make(simplify(ramp->base / per_word + word), 1, at_once);
            loads_.emplace_back(unique_name("row_words"),
                                Load::make(type, load->name, at, load->image, load->param, const_true(at_once),
                                           ModulusRemainder(at_once, 0)));
            parts.push_back(Variable::make(type, loads_.back().first));
        }
        return Reinterpret::make(load->type, parts.size() == 1 ? parts[0] : Shuffle::make_concat(parts));
    }

    bool loads_rows(const Stmt &body) const {
        return std::any_of(rows_.begin(), rows_.end(),
                           [&](const std::string &row) { return stmt_uses_var(body, row); });
    }

    const std::vector<std::string> &rows_;
    const int vector_;
    std::vector<std::pair<std::string, Expr>> loads_;
    bool in_loop_ = false;
};

}  // namespace

// What is made of types goes where it is used.
Stmt TypedLoops::visit(const LetStmt *let) {
    const std::string *names[] = {&sides_.key_type, &sides_.value_type, &sides_.row_layout};
    const bool of_types =
        std::any_of(std::begin(names), std::end(names), [&](auto *name) { return expr_uses_var(let->value, *name); });
    return of_types && is_pure(let->value) ? mutate(substitute(let->name, let->value, let->body))
                                           : IRMutator::visit(let);
}

Stmt TypedLoops::loop_of(hattn_dtype type, RowLayout layout, const For *loop) const {
    const std::map<std::string, Expr> known = {{sides_.key_type, static_cast<int>(type)},
                                               {sides_.value_type, static_cast<int>(type)},
                                               {sides_.row_layout, static_cast<int>(layout)}};
    const Stmt typed = simplify(substitute(known, Stmt(loop)));
    return RowsFirst(sides_.rows, vector_).mutate(typed);
}

Stmt TypedLoops::visit(const For *loop) {
    Stmt result = IRMutator::visit(loop);
    if (loop->name.find(loop_) == std::string::npos) {
        return result;
    }
    const Stmt any = result;
    result = simplify(substitute(sides_.row_layout, static_cast<int>(kRowsAnywhere), result));  // elements one by one
    for (hattn_dtype type : generators::kFloatTypes) {
        const auto variable = [](const std::string &name) { return Variable::make(Int(32), name); };
        const Expr of = static_cast<int>(type);
        const Expr is_type = variable(sides_.key_type) == of && variable(sides_.value_type) == of;
        for (const RowLayout layout : {kRowsAligned, kRowsSideBySide}) {
            result = IfThenElse::make(is_type && variable(sides_.row_layout) == static_cast<int>(layout),
                                      loop_of(type, layout, any.as<For>()), result);
        }
    }
    return result;
}

}  // namespace hattn::schedules::gpu
