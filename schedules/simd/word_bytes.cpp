#include "word_bytes.h"

#include <vector>

#include "generators/integer_digits.h"
#include "schedules/statements.h"

namespace hattn::schedules::simd {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kWordBytes = 4;

// The words whose first, or second, bytes a statement stores; or undefined.
Expr words_of(const Store *store, int byte) {
    const Call *call = store && is_const_one(store->predicate) ? store->value.as<Call>() : nullptr;
    const bool found = call && call->name == generators::kWordByteCall && is_const(call->args[1], byte);
    return found && call->type.is_vector() ? call->args[0] : Expr();
}

// The bytes from the first one on, of all words one after the other.
Expr bytes_of(const Expr &words, int first, int count) {
    const int lanes = words.type().lanes();
    std::vector<int> chosen;
    for (int byte = first; byte < first + count; ++byte) {
        for (int lane = 0; lane < lanes; ++lane) {
            chosen.push_back(lane * kWordBytes + byte);
        }
    }
    return Shuffle::make({reinterpret(Int(8, kWordBytes * lanes), words)}, chosen);
}

// Of two statements that store the first and the second bytes of the same words side by side, one; else undefined.
Stmt stored_as_one(const Stmt &first, const Stmt &second) {
    const Stmt one = without_lets(first), other = without_lets(second);
    const Store *low = one.as<Store>(), *high = other.as<Store>();
    const Expr words = words_of(low, 0), same = words_of(high, 1);
    if (!words.defined() || !same.defined() || low->name != high->name || !equal(words, same)) {
        return {};
    }
    const Ramp *at = low->index.as<Ramp>(), *next = high->index.as<Ramp>();
    if (!at || !next || !is_const_one(at->stride) || !is_const_one(next->stride) ||
        !is_const(simplify(next->base - at->base), at->lanes)) {
        return {};
    }
    const int lanes = 2 * at->lanes;
    return Store::make(low->name, bytes_of(words, 0, 2), Ramp::make(at->base, 1, lanes), low->param, const_true(lanes),
                       ModulusRemainder());
}

// Of whole words, without what each byte gets from the one before it.
Expr shifted_in_words(const Expr &bytes, int bits) {
    const Type type = bytes.type(), of_words = UInt(32, type.lanes() / kWordBytes);
    const Expr words = reinterpret(of_words, bytes) << make_const(of_words, bits);
    return reinterpret(type, words) & make_const(type, (0xff << bits) & 0xff);
}

}  // namespace

Expr WordBytes::visit(const Call *call) {
    const Type type = call->type;
    if (shifts_words_ && call->is_intrinsic(Call::shift_left) && type.element_of() == UInt(8) &&
        type.lanes() % kWordBytes == 0) {
        if (const auto bits = as_const_uint(call->args[1])) {
            return shifted_in_words(mutate(call->args[0]), static_cast<int>(*bits));
        }
    }
    if (call->name != generators::kWordByteCall) {
        return IRMutator::visit(call);
    }
    const Expr word = mutate(call->args[0]);
    const auto byte = as_const_int(call->args[1]);
    if (!byte || word.type().is_scalar()) {
        return cast(call->type, word >> (cast(word.type(), call->args[1]) * 8));
    }
    return bytes_of(word, static_cast<int>(*byte), 1);
}

Stmt WordBytes::visit(const Block *block) {
    const std::vector<Stmt> statements = statements_of(block);
    std::vector<Stmt> mutated;
    for (size_t i = 0; i < statements.size(); ++i) {
        const Stmt both = i + 1 < statements.size() ? stored_as_one(statements[i], statements[i + 1]) : Stmt();
        mutated.push_back(mutate(both.defined() ? both : statements[i]));
        i += both.defined();
    }
    return Block::make(mutated);
}

}  // namespace hattn::schedules::simd
