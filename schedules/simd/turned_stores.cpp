#include "turned_stores.h"

#include <string>
#include <vector>

#include "schedules/statements.h"

namespace hattn::schedules::simd {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kSide = 16;           // of the matrix of words
constexpr int kPasses = 2 * kSide;  // of the loop, for two numbers of a word each

using Vectors = std::vector<Expr>;

// Each under a name of its own, lest an expression that is used twice is computed twice.
struct Names {
    std::vector<std::pair<std::string, Expr>> values;

    Expr operator()(Expr value) {
        values.emplace_back(unique_name("turned"), value);
        return Variable::make(value.type(), values.back().first);
    }

    Stmt around(Stmt body) const {
        for (auto value = values.rbegin(); value != values.rend(); ++value) {
            body = LetStmt::make(value->first, value->second, body);
        }
        return body;
    }
};

// The upper halves of float32 numbers are bfloat16 ones.
Expr rounded_bits(const Expr &number) {
    const Type words = UInt(32, kSide);
    return reinterpret(words, number) + make_const(words, 0x8000);
}

Expr word_of(const Expr &lower, const Expr &upper) {
    const Type words = UInt(32, kSide);
    return (rounded_bits(lower) >> make_const(words, 16)) | (rounded_bits(upper) & make_const(words, 0xffff0000));
}

Vectors turned(Vectors rows, Names &names) {
    constexpr int kHalf = kSide / 2, kRounds = 4;
    std::vector<int> lower, upper;
    for (int lane = 0; lane < kHalf; ++lane) {
        lower.insert(lower.end(), {lane, kSide + lane});
        upper.insert(upper.end(), {kHalf + lane, kSide + kHalf + lane});
    }
    for (int round = 0; round < kRounds; ++round) {
        Vectors shuffled;
        for (int row = 0; row < kHalf; ++row) {
            shuffled.push_back(names(Shuffle::make({rows[row], rows[row + kHalf]}, lower)));
            shuffled.push_back(names(Shuffle::make({rows[row], rows[row + kHalf]}, upper)));
        }
        rows = std::move(shuffled);
    }
    return rows;
}

bool is_int(const Expr &value, int64_t expected) {
    return as_const_int(value) == expected;
}

}  // namespace

Stmt TurnedStores::visit(const For *loop) {
    const Stmt body = without_lets(loop->body);
    const Store *store = body.as<Store>();
    const Ramp *index = store ? store->index.as<Ramp>() : nullptr;
    const Cast *rounded = store ? store->value.as<Cast>() : nullptr;
    if (!index || !rounded || loop->for_type == ForType::Parallel || !is_int(loop->extent, kPasses) ||
        store->value.type() != BFloat(16, kSide) || rounded->value.type() != Float(32, kSide) ||
        !index->base.type().is_scalar()) {
        return IRMutator::visit(loop);
    }
    const auto in_pass = [&](const Expr &value, int pass) {
        return simplify(substitute(loop->name, loop->min + pass, value));
    };
    const Expr first = in_pass(index->base, 0);
    if (!is_int(simplify(in_pass(index->base, 1) - first), 1)) {
        return IRMutator::visit(loop);
    }
    Names names;
    Vectors words;
    for (int pass = 0; pass < kPasses; pass += 2) {
        words.push_back(names(word_of(in_pass(rounded->value, pass), in_pass(rounded->value, pass + 1))));
    }
    words = turned(std::move(words), names);
    std::vector<Stmt> stores;
    for (int row = 0; row < kSide; ++row) {
        stores.push_back(Store::make(store->name, reinterpret(BFloat(16, kPasses), words[row]),
                                     Ramp::make(simplify(first + row * index->stride), 1, kPasses), store->param,
                                     const_true(kPasses), ModulusRemainder()));
    }
    return names.around(Block::make(stores));
}

}  // namespace hattn::schedules::simd
