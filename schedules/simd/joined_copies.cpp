#include "joined_copies.h"

#include <optional>
#include <vector>

#include "schedules/statements.h"

namespace hattn::schedules::simd {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kVectorBits = 512;

// array[to, to + 1, ...] = from[first, first + 1, ...]
struct Copy {
    const Store *store;
    const Load *load;
    const Ramp *to, *first;
};

const Ramp *dense(const Expr &index) {
    const Ramp *ramp = index.as<Ramp>();
    return ramp && is_const_one(ramp->stride) && ramp->base.type().is_scalar() ? ramp : nullptr;
}

// Remainders without what is known of them, as in 4 * x % 16 + 1, lest distances between them are not seen.
class KnownRemainders : public IRMutator {
    using IRMutator::visit;

    Expr visit(const Mod *mod) override {
        const auto divisor = as_const_int(mod->b);
        const ModulusRemainder known = modulus_remainder(mod->a);
        if (!divisor || known.modulus <= 1 || known.remainder == 0 || *divisor % known.modulus != 0) {
            return IRMutator::visit(mod);
        }
        const Expr remainder = make_const(mod->type, known.remainder);
        return Mod::make(mod->a - remainder, mod->b) + remainder;
    }
};

std::optional<Copy> copy_of(const Stmt &statement) {
    const Store *store = statement.as<Store>();
    const Load *load = store && is_const_one(store->predicate) ? store->value.as<Load>() : nullptr;
    if (!load || !is_const_one(load->predicate) || loads_from(store->value, store->name) ||
        loads_from(store->index, store->name)) {
        return {};
    }
    const Copy copy{store, load, dense(store->index), dense(load->index)};
    return copy.to && copy.first ? std::optional(copy) : std::nullopt;
}

bool follows(const Copy &copy, const Copy &first, int numbers) {
    const auto behind = [&](const Ramp *index, const Ramp *of_first) {
        return is_const(simplify(KnownRemainders().mutate(index->base - of_first->base)), numbers);
    };
    return copy.store->name == first.store->name && copy.load->name == first.load->name &&
           copy.load->type == first.load->type && behind(copy.to, first.to) && behind(copy.first, first.first);
}

Stmt joined(const Copy &copy, int numbers) {
    const Expr all = const_true(numbers);
    const Expr load = Load::make(copy.load->type.with_lanes(numbers), copy.load->name,
                                 Ramp::make(copy.first->base, 1, numbers), copy.load->image, copy.load->param, all, {});
    return Store::make(copy.store->name, load, Ramp::make(copy.to->base, 1, numbers), copy.store->param, all, {});
}

}  // namespace

Stmt JoinedCopies::visit(const Block *block) {
    const std::vector<Stmt> statements = statements_of(block);
    std::vector<Stmt> mutated;
    for (size_t at = 0; at < statements.size();) {
        const std::optional<Copy> copy = copy_of(statements[at]);
        const int lanes = copy ? copy->load->type.lanes() : 0;
        const int parts = copy ? kVectorBits / copy->load->type.bits() / lanes : 0;
        int run = 1;
        for (; run < parts && at + run < statements.size(); ++run) {
            const std::optional<Copy> next = copy_of(statements[at + run]);
            if (!next || !follows(*next, *copy, run * lanes)) {
                break;
            }
        }
        const bool whole = parts > 1 && run == parts;
        mutated.push_back(whole ? joined(*copy, parts * lanes) : mutate(statements[at]));
        at += whole ? parts : 1;
    }
    return Block::make(mutated);
}

}  // namespace hattn::schedules::simd
