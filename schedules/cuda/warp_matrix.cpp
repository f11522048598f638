#include "warp_matrix.h"

#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "matrix_calls.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kWarp = 32;  // threads

// Of the nest, with all lets substituted.
struct Nest {
    std::string sum, half, column;  // names of its loops
    std::string product;
    Expr index;  // of the element of the product
    const Load *a = nullptr, *b = nullptr;
    Expr keep;  // holds what a and b point into
};

struct Body {
    std::map<std::string, std::string> loops;  // by the end of their names
    const Store *store = nullptr;
    Expr index, value;
};

std::optional<std::string> loop_kind(const For *loop) {
    constexpr std::pair<const char *, int> kLoops[] = {{kMatrixSum, 16}, {kMatrixHalf, 2}, {kMatrixColumn, 2}};
    for (const auto &[name, extent] : kLoops) {
        if (ends_with(loop->name, name) && is_const_zero(loop->min) && is_const(loop->extent, extent)) {
            return name;
        }
    }
    return {};
}

std::optional<Body> body_of(const For *nest) {
    Body body;
    std::vector<std::pair<std::string, Expr>> lets;
    Stmt inside = nest;
    while (!body.store) {
        if (const For *loop = inside.as<For>()) {
            const auto kind = loop_kind(loop);
            if (!kind) {
                return {};
            }
            body.loops[*kind] = loop->name;
            inside = loop->body;
        } else if (const LetStmt *let = inside.as<LetStmt>()) {
            lets.emplace_back(let->name, let->value);
            inside = let->body;
        } else if (body.store = inside.as<Store>(); !body.store) {
            return {};
        }
    }
    body.index = body.store->index;
    body.value = body.store->value;
    for (size_t i = lets.size(); i-- > 0;) {
        body.index = substitute(lets[i].first, lets[i].second, body.index);
        body.value = substitute(lets[i].first, lets[i].second, body.value);
    }
    body.value = substitute_in_all_lets(body.value);
    return body.loops.size() == 3 ? std::optional(body) : std::nullopt;
}

// The float16 numbers that are multiplied; widening to float32 and products of it are one or two operations.
std::optional<std::pair<Expr, Expr>> factors_of(const Expr &product) {
    const auto narrow = [](const Expr &e) {
        const Cast *cast = e.as<Cast>();
        return cast ? cast->value : e;
    };
    if (const Mul *mul = product.as<Mul>()) {
        return {{narrow(mul->a), narrow(mul->b)}};
    }
    if (const Call *call = Call::as_intrinsic(product, {Call::widening_mul})) {
        return {{call->args[0], call->args[1]}};
    }
    return {};
}

std::optional<Nest> match(const For *loop) {
    const std::optional<Body> body = body_of(loop);
    const Add *sum = body ? body->value.as<Add>() : nullptr;
    if (!sum) {
        return {};
    }
    const auto is_product = [&](const Expr &e) {
        const Load *load = e.as<Load>();
        return load && load->name == body->store->name;
    };
    const auto factors = factors_of(is_product(sum->a) ? sum->b : sum->a);
    if (!(is_product(sum->a) || is_product(sum->b)) || !factors) {
        return {};
    }
    Nest nest{body->loops.at(kMatrixSum),
              body->loops.at(kMatrixHalf),
              body->loops.at(kMatrixColumn),
              body->store->name,
              body->index,
              factors->first.as<Load>(),
              factors->second.as<Load>(),
              body->value};
    if (!nest.a || !nest.b || nest.a->type != Float(16) || nest.b->type != Float(16)) {
        return {};
    }
    if (expr_uses_var(nest.a->index, nest.column)) {
        std::swap(nest.a, nest.b);
    }
    const bool apart = !expr_uses_var(nest.a->index, nest.column) && !expr_uses_var(nest.b->index, nest.half);
    return apart ? std::optional(nest) : std::nullopt;
}

Expr load_bits(const Load *from, const Expr &index, int lanes, ModulusRemainder alignment) {
    return Load::make(UInt(16, lanes), from->name, index, from->image, from->param, const_true(lanes), alignment);
}

// Two elements in a register.
Expr pair_of(const Load *from, const Expr &first, const Expr &second) {
    if (is_const_one(simplify(second - first))) {
        return Halide::reinterpret(UInt(32), load_bits(from, Ramp::make(first, 1, 2), 2, ModulusRemainder(2, 0)));
    }
    return Halide::reinterpret(UInt(32),
                               Shuffle::make_concat({load_bits(from, first, 1, {}), load_bits(from, second, 1, {})}));
}

Expr at(const Expr &index, const std::map<std::string, Expr> &values) {
    return simplify(substitute(values, index));
}

// Operands in the order of the instruction: which elements of A, B and the product a lane holds.
Stmt as_call(const Nest &nest, const Expr &lane) {
    const Expr pair = lane % 4 * 2;
    std::vector<Expr> elements, arguments;
    for (int half = 0; half < 2; ++half) {
        for (int column = 0; column < 2; ++column) {
            elements.push_back(at(nest.index, {{nest.half, half}, {nest.column, column}}));
            arguments.push_back(Load::make(Float(32), nest.product, elements.back(), Buffer<>(), Parameter(),
                                           const_true(), ModulusRemainder()));
        }
    }
    for (int upper = 0; upper < 2; ++upper) {
        for (int half = 0; half < 2; ++half) {
            const Expr k = pair + 8 * upper;
            arguments.push_back(pair_of(nest.a, at(nest.a->index, {{nest.half, half}, {nest.sum, k}}),
                                        at(nest.a->index, {{nest.half, half}, {nest.sum, k + 1}})));
        }
    }
    // Of B, lane l holds column l / 4: the one that lane l / 8 computes with matrix_column = l / 4 % 2.
    const std::string sum = unique_name("k");
    Expr index_b = substitute(nest.sum, Variable::make(Int(32), sum), nest.b->index);
    index_b = substitute(
        std::map<std::string, Expr>{{lane.as<Variable>()->name, lane / 8}, {nest.column, lane / 4 % 2}}, index_b);
    for (int upper = 0; upper < 2; ++upper) {
        const Expr k = pair + 8 * upper;
        arguments.push_back(pair_of(nest.b, at(index_b, {{sum, k}}), at(index_b, {{sum, k + 1}})));
    }
    const Expr call = Call::make(UInt(128), kMatrixCall, arguments, Call::PureExtern);
    const std::string result = unique_name("matrix_product");
    std::vector<Stmt> stores;
    for (int i = 0; i < 4; ++i) {
        stores.push_back(Store::make(nest.product,
                                     Shuffle::make_extract_element(Variable::make(Float(32, 4), result), i),
                                     elements[static_cast<size_t>(i)], Parameter(), const_true(), ModulusRemainder()));
    }
    return LetStmt::make(result, Halide::reinterpret(Float(32, 4), call), Block::make(stores));
}

}  // namespace

Stmt WarpMatrix::visit(const For *loop) {
    if (loop->for_type == ForType::GPUThread && ends_with(loop->name, ".thread_id_x")) {
        lane_ = is_const(loop->extent, kWarp) ? loop->name : "";
    }
    if (!ends_with(loop->name, kMatrixSum)) {
        return IRMutator::visit(loop);
    }
    const std::optional<Nest> nest = match(loop);
    if (!nest || lane_.empty()) {
        std::ostringstream text;
        text << "no product of matrices for a warp:\n" << Stmt(loop);
        throw std::runtime_error(text.str());
    }
    return as_call(*nest, Variable::make(Int(32), lane_));
}

// Values made of the lane go where they are used, so that indices show it.
Stmt WarpMatrix::visit(const LetStmt *let) {
    if (!lane_.empty() && is_pure(let->value) && expr_uses_var(let->value, lane_)) {
        return mutate(substitute(let->name, let->value, let->body));
    }
    return IRMutator::visit(let);
}

}  // namespace hattn::schedules::cuda
