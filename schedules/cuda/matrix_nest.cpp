#include "matrix_nest.h"

#include "warp_matrix.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

Expr load_bits(const Load *from, const Expr &index, int lanes, ModulusRemainder alignment) {
    return Load::make(UInt(16, lanes), from->name, index, from->image, from->param, const_true(lanes), alignment);
}

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

// The 16-bit number behind a float32 one, in memory as what it is or as its bits.
struct Factor {
    const Load *load = nullptr;
    bool is_bfloat16 = false;
};

std::optional<Factor> factor_of(const Expr &value) {
    const auto bits_in = [](const Expr &e) {
        const Load *load = e.as<Load>();
        return load && load->type == UInt(16) ? load : nullptr;
    };
    const auto load_in = [&](const Expr &e) -> const Load * {
        const Reinterpret *bits = e.as<Reinterpret>();
        const Load *load = e.as<Load>();
        return bits ? bits_in(bits->value) : load && load->type == Float(16) ? load : nullptr;
    };
    const Cast *widened = value.as<Cast>();
    if (const Expr &narrow = widened ? widened->value : value; narrow.type() == Float(16)) {
        const Load *load = load_in(narrow);
        return load ? std::optional(Factor{load, false}) : std::nullopt;
    }
    // bfloat16: the upper half of a float32.
    const Reinterpret *bits = value.as<Reinterpret>();
    const Mul *shift = bits ? bits->value.as<Mul>() : nullptr;
    const Cast *wide = shift && is_const(shift->b, 1 << 16) ? shift->a.as<Cast>() : nullptr;
    const Load *load = wide ? bits_in(wide->value) : nullptr;
    return load ? std::optional(Factor{load, true}) : std::nullopt;
}

// Widening to float32 and products of it are one or two operations.
std::optional<std::pair<Factor, Factor>> factors_of(const Expr &product) {
    Expr a, b;
    if (const Mul *mul = product.as<Mul>()) {
        a = mul->a;
        b = mul->b;
    } else if (const Call *call = Call::as_intrinsic(product, {Call::widening_mul})) {
        a = call->args[0];
        b = call->args[1];
    } else {
        return {};
    }
    const auto first = factor_of(a), second = factor_of(b);
    const bool alike = first && second && first->is_bfloat16 == second->is_bfloat16;
    return alike ? std::optional(std::pair(*first, *second)) : std::nullopt;
}

}  // namespace

std::optional<Nest> match_nest(const For *loop) {
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
              factors->first.load,
              factors->second.load,
              factors->first.is_bfloat16,
              body->value};
    if (expr_uses_var(nest.a->index, nest.column)) {
        std::swap(nest.a, nest.b);
    }
    const bool apart = !expr_uses_var(nest.a->index, nest.column) && !expr_uses_var(nest.b->index, nest.half);
    return apart ? std::optional(nest) : std::nullopt;
}

Stmt nest_in(Stmt statement) {
    while (const LetStmt *let = statement.as<LetStmt>()) {
        if (!is_pure(let->value)) {
            return {};
        }
        statement = substitute(let->name, let->value, let->body);
    }
    const For *loop = statement.as<For>();
    return loop && ends_with(loop->name, kMatrixSum) ? statement : Stmt();
}

bool is_copy(const Stmt &statement) {
    const ProducerConsumer *stage = statement.as<ProducerConsumer>();
    return stage && stage->is_producer;
}

Expr at(const Expr &index, const std::map<std::string, Expr> &values) {
    return simplify(substitute(values, index));
}

std::vector<Expr> registers_of_a(const Nest &nest, const Expr &lane) {
    const Expr pair = lane % 4 * 2;
    std::vector<Expr> registers;
    for (int upper = 0; upper < 2; ++upper) {
        for (int half = 0; half < 2; ++half) {
            const Expr k = pair + 8 * upper;
            registers.push_back(pair_of(nest.a, at(nest.a->index, {{nest.half, half}, {nest.sum, k}}),
                                        at(nest.a->index, {{nest.half, half}, {nest.sum, k + 1}})));
        }
    }
    return registers;
}

Expr pair_of(const Load *from, const Expr &first, const Expr &second) {
    if (is_const_one(simplify(second - first))) {
        return Halide::reinterpret(UInt(32), load_bits(from, Ramp::make(first, 1, 2), 2, ModulusRemainder(2, 0)));
    }
    return Halide::reinterpret(UInt(32),
                               Shuffle::make_concat({load_bits(from, first, 1, {}), load_bits(from, second, 1, {})}));
}

}  // namespace hattn::schedules::cuda
