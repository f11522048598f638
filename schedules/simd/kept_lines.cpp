#include "kept_lines.h"

namespace hattn::schedules::simd {

using namespace Halide;
using namespace Halide::Internal;

namespace {

// LLVM's intrinsic: its name, and its operands behind the address (of its Language Reference, "llvm.prefetch").
constexpr const char *kPrefetch = "llvm.prefetch.p0";
constexpr int kRead = 0, kAllCaches = 3, kAllButTheFirst = 2, kData = 1;

// The request as a statement: it has no value. Halide's module declares the intrinsic, for its own prefetch.
Stmt ask_for_line(const Call *prefetch, int caches) {
    Expr base = reinterpret<uint64_t>(prefetch->args[0]), elements = cast<int64_t>(prefetch->args[1]);
    Expr address = reinterpret(Handle(), base + cast<uint64_t>(elements * prefetch->type.bytes()));
    return Evaluate::make(Call::make(Int(32), kPrefetch, {address, kRead, caches, kData}, Call::Extern));
}

Stmt in_order(const std::vector<Stmt> &first, const Stmt &last) {
    return first.empty() ? last : Block::make(Block::make(first), last);
}

}  // namespace

Stmt KeptLines::visit(const Store *store) {
    ScopedValue<std::vector<Stmt>> asked(asked_, {});
    Stmt mutated = IRMutator::visit(store);
    return in_order(asked_, mutated);
}

Stmt KeptLines::visit(const LetStmt *let) {
    ScopedValue<std::vector<Stmt>> asked(asked_, {});
    Expr value = mutate(let->value);
    const std::vector<Stmt> first = asked_;
    asked_.clear();
    return in_order(first, LetStmt::make(let->name, value, mutate(let->body)));
}

Expr KeptLines::visit(const Let *let) {
    Expr value = mutate(let->value);
    const size_t outside = asked_.size();
    Expr body = mutate(let->body);
    for (size_t i = outside; i < asked_.size(); ++i) {
        asked_[i] = LetStmt::make(let->name, value, asked_[i]);
    }
    return Let::make(let->name, value, body);
}

Expr KeptLines::visit(const Call *call) {
    if (!call->is_intrinsic(Call::prefetch)) {
        return IRMutator::visit(call);
    }
    asked_.push_back(ask_for_line(call, in_first_level_ ? kAllCaches : kAllButTheFirst));
    return make_zero(call->type);
}

}  // namespace hattn::schedules::simd
