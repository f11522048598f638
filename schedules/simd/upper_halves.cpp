#include "upper_halves.h"

#include "generators/number_formats.h"
#include "schedules/statements.h"

namespace hattn::schedules::simd {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kHalf = 16;

Expr bits_of(const Expr &number) {
    return reinterpret(UInt(32, number.type().lanes()), number);
}

}  // namespace

Expr number_of_half(const Expr &value) {
    const Reinterpret *same = value.as<Reinterpret>();
    const Call *call = (same ? same->value : value).as<Call>();
    return call && call->name == generators::kUpperHalfCall ? call->args[0] : Expr();
}

Expr word_of_halves(const Expr &lower, const Expr &upper) {
    const Type words = UInt(32, lower.type().lanes());
    return (bits_of(lower) >> make_const(words, kHalf)) | (bits_of(upper) & make_const(words, 0xffff0000));
}

namespace {

// A statement that begins with the store of every other number, after that of the ones between: with one for both.
Stmt in_words(const Store *even, const Stmt &statement) {
    if (const LetStmt *let = statement.as<LetStmt>()) {
        const Stmt body = in_words(even, let->body);
        return body.defined() ? LetStmt::make(let->name, let->value, body) : body;
    }
    if (const Block *block = statement.as<Block>()) {
        const Stmt first = in_words(even, block->first);
        return first.defined() ? Block::make(first, block->rest) : first;
    }
    const Store *odd = statement.as<Store>();
    const Ramp *at = odd && odd->name == even->name ? even->index.as<Ramp>() : nullptr;
    const Expr lower = number_of_half(even->value), upper = odd ? number_of_half(odd->value) : Expr();
    if (!at || !is_const_one(even->predicate) || !is_const_one(odd->predicate) || !is_const(at->stride, 2) ||
        !lower.defined() || !upper.defined() || !is_const_one(simplify(odd->index - even->index))) {
        return {};
    }
    const int lanes = 2 * at->lanes;
    return Store::make(even->name, reinterpret(even->value.type().with_lanes(lanes), word_of_halves(lower, upper)),
                       Ramp::make(at->base, 1, lanes), even->param, const_true(lanes), ModulusRemainder());
}

}  // namespace

Expr UpperHalves::visit(const Call *call) {
    if (call->name != generators::kUpperHalfCall) {
        return IRMutator::visit(call);
    }
    const Expr number = mutate(call->args[0]);
    const int lanes = number.type().lanes();
    if (lanes == 1) {
        return cast<uint16_t>(bits_of(number) >> kHalf);
    }
    return Shuffle::make_slice(reinterpret(UInt(16, 2 * lanes), number), 1, 2, lanes);
}

Stmt UpperHalves::visit(const Block *block) {
    const Stmt even = without_lets(block->first);
    const Store *store = even.as<Store>();
    if (const Stmt words = store ? in_words(store, block->rest) : Stmt(); words.defined()) {
        return mutate(words);
    }
    return IRMutator::visit(block);
}

}  // namespace hattn::schedules::simd
