#include "masked_rows.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace hattn::schedules::simd {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr std::string_view kRows[] = {"query",        "key",         "key_halves", "key_bytes", "value",
                                      "value_halves", "value_bytes", "bias",       "mask"};
// Masks of AVX2 are vectors, for 32 bits alone. LLVM keeps those of keys in registers all along, which the loop over
// whole lines of keys then lacks.
constexpr std::string_view kRowsOfAvx2[] = {"value"};

// base + min(first + lane, last), base being what rows start at.
struct ClampedIndex {
    Expr base, first, last;
};

std::optional<ClampedIndex> clamped(const Expr &index, const Scope<Expr> &named) {
    if (const Variable *name = index.as<Variable>()) {
        return named.contains(name->name) ? clamped(named.get(name->name), named) : std::nullopt;
    }
    if (const Add *sum = index.as<Add>()) {
        for (const auto &[one, other] : {std::pair(sum->a, sum->b), std::pair(sum->b, sum->a)}) {
            const Broadcast *base = other.as<Broadcast>();
            if (std::optional<ClampedIndex> found = base ? clamped(one, named) : std::nullopt) {
                found->base += base->value;
                return found;
            }
        }
        return std::nullopt;
    }
    const Min *least = index.as<Min>();
    const Ramp *lanes = least ? least->a.as<Ramp>() : nullptr;
    const Broadcast *last = least ? least->b.as<Broadcast>() : nullptr;
    if (!lanes || !last || !is_const_one(lanes->stride) || !last->value.type().is_scalar()) {
        return std::nullopt;
    }
    return ClampedIndex{0, lanes->base, last->value};
}

std::span<const std::string_view> maskable_rows(const Target &target) {
    if (target.has_feature(Target::AVX512_Skylake)) {
        return kRows;
    }
    return target.has_feature(Target::AVX2) ? std::span<const std::string_view>(kRowsOfAvx2)
                                            : std::span<const std::string_view>();
}

}  // namespace

MaskedRows::MaskedRows(const Target &target) : maskable_(maskable_rows(target)) {}

Stmt MaskedRows::visit(const LetStmt *let) {
    const ScopedBinding<Expr> binding(let->value.type().is_vector(), named_vectors_, let->name, let->value);
    return IRMutator::visit(let);
}

Expr MaskedRows::visit(const Let *let) {
    const ScopedBinding<Expr> binding(let->value.type().is_vector(), named_vectors_, let->name, let->value);
    return IRMutator::visit(let);
}

Expr MaskedRows::visit(const Load *load) {
    const bool may_be = is_const_one(load->predicate) && std::ranges::find(maskable_, load->name) != maskable_.end();
    const auto index = may_be ? clamped(load->index, named_vectors_) : std::nullopt;
    if (!index) {
        return IRMutator::visit(load);
    }
    const int lanes = load->type.lanes();
    Expr first = mutate(index->first);
    Expr there = Ramp::make(first, 1, lanes) <= Broadcast::make(mutate(index->last), lanes);
    // As bits: LLVM takes it that no float that is chosen is infinite.
    const Type bits = load->type.with_code(halide_type_uint);
    Expr masked = Load::make(bits, load->name, Ramp::make(mutate(index->base) + first, 1, lanes), load->image,
                             load->param, there, ModulusRemainder());
    Expr chosen = Select::make(there, masked, make_zero(bits));
    return load->type == bits ? chosen : reinterpret(load->type, chosen);
}

}  // namespace hattn::schedules::simd
