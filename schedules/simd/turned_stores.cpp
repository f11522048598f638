#include "turned_stores.h"

#include <algorithm>
#include <string>
#include <vector>

#include "schedules/statements.h"
#include "upper_halves.h"

namespace hattn::schedules::simd {

using namespace Halide;
using namespace Halide::Internal;

namespace {

using Vectors = std::vector<Expr>;

// The nearest bfloat16 number is its upper half.
Expr rounded_number(const Expr &number) {
    const Type words = UInt(32, number.type().lanes());
    return reinterpret(number.type(), reinterpret(words, number) + make_const(words, 0x8000));
}

Vectors turned(Vectors rows, NamedValues &names) {
    const int side = static_cast<int>(rows.size()), half = side / 2;
    std::vector<int> lower, upper;
    for (int lane = 0; lane < half; ++lane) {
        lower.insert(lower.end(), {lane, side + lane});
        upper.insert(upper.end(), {half + lane, side + half + lane});
    }
    for (int numbered = 1; numbered < side; numbered *= 2) {
        Vectors shuffled;
        for (int row = 0; row < half; ++row) {
            shuffled.push_back(names(Shuffle::make({rows[row], rows[row + half]}, lower)));
            shuffled.push_back(names(Shuffle::make({rows[row], rows[row + half]}, upper)));
        }
        rows = std::move(shuffled);
    }
    return rows;
}

bool is_int(const Expr &value, int64_t expected) {
    return as_const_int(value) == expected;
}

// Indices of vectors that are loaded number by number.
Vectors scattered_indices(const Expr &value) {
    class Loads : public IRVisitor {
    public:
        Vectors scattered;

    private:
        using IRVisitor::visit;

        void visit(const Load *load) override {
            const Ramp *index = load->index.as<Ramp>();
            if (load->type.is_vector() && !(index && as_const_int(index->stride))) {
                scattered.push_back(load->index);
            }
            IRVisitor::visit(load);
        }
    };
    Loads loads;
    value.accept(&loads);
    return std::move(loads.scattered);
}

// A store at a stride, of which `passes` make a block. Null if it is another.
struct StridedStore {
    const Store *store = nullptr;
    const Ramp *index = nullptr;
    Expr number;  // that is stored, or whose upper half is
    int passes = 0;
};

StridedStore strided_store(const Stmt &body) {
    const Store *store = body.as<Store>();
    const Ramp *index = store ? store->index.as<Ramp>() : nullptr;
    if (!index || !index->base.type().is_scalar() || is_const_one(index->stride) || !is_const_one(store->predicate)) {
        return {};
    }
    const int side = index->lanes;
    const Cast *rounded = store->value.as<Cast>();
    Expr half = number_of_half(store->value);
    if (rounded && store->value.type() == BFloat(16, side) && rounded->value.type() == Float(32, side)) {
        half = rounded_number(rounded->value);
    }
    const bool halves = half.defined();
    if (loads_from(store->value, store->name) || (side != 8 && side != 16) ||
        (!halves && store->value.type() != Float(32, side))) {
        return {};
    }
    return {store, index, halves ? half : store->value, halves ? 2 * side : side};
}

}  // namespace

Stmt TurnedStores::visit(const For *loop) {
    const Stmt body = without_lets(loop->body);
    const auto [store, index, number, passes] = strided_store(body);
    const auto extent = as_const_int(loop->extent);
    if (!store || !extent || *extent % passes != 0 || loop->for_type == ForType::Parallel) {
        return IRMutator::visit(loop);
    }
    const int64_t blocks = *extent / passes;
    const Expr block = blocks == 1 ? Expr(0) : Variable::make(Int(32), loop->name);
    const auto in_pass = [&](const Expr &value, int pass) {
        return simplify(substitute(loop->name, loop->min + block * passes + pass, value));
    };
    const Expr first = in_pass(index->base, 0);
    // What is loaded number by number is so in a loop, unless all rows share it. Two passes may be one row's.
    const auto differs = [&](const Expr &indices) { return !equal(in_pass(indices, 0), in_pass(indices, 2)); };
    if (!is_int(simplify(in_pass(index->base, 1) - first), 1) ||
        std::ranges::any_of(scattered_indices(substitute_in_all_lets(number)), differs)) {
        return IRMutator::visit(loop);
    }
    NamedValues names;
    Vectors rows;
    const bool halves = passes > index->lanes;
    for (int pass = 0; pass < passes; pass += halves ? 2 : 1) {
        const Expr row = in_pass(number, pass);
        rows.push_back(names(halves ? word_of_halves(row, in_pass(number, pass + 1)) : row));
    }
    rows = turned(std::move(rows), names);
    std::vector<Stmt> stores;
    for (int row = 0; row < index->lanes; ++row) {
        stores.push_back(Store::make(store->name, halves ? reinterpret(BFloat(16, passes), rows[row]) : rows[row],
                                     Ramp::make(simplify(first + row * index->stride), 1, passes), store->param,
                                     const_true(passes), ModulusRemainder()));
    }
    const Stmt turn = names.around(Block::make(stores));
    return blocks == 1 ? turn
                       : For::make(loop->name, 0, static_cast<int>(blocks), loop->for_type, loop->partition_policy,
                                   loop->device_api, turn);
}

}  // namespace hattn::schedules::simd
