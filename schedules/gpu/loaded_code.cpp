#include "loaded_code.h"

#include <algorithm>

#include "runtime/device/loaded_code.h"

namespace hattn::schedules::gpu {

using namespace Halide;
using namespace Halide::Internal;

namespace {

bool is_float16(const Expr &value) {
    return value.type() == Float(16);
}

Expr call(Type type, const char *name, std::vector<Expr> arguments) {
    return Call::make(type, name, arguments, Call::PureExtern);
}

}  // namespace

Stmt LoadedCode::visit(const LetStmt *let) {
    const bool of_types = std::any_of(types_.begin(), types_.end(),
                                      [&](const auto &type) { return expr_uses_var(let->value, type.first); });
    return of_types ? mutate(substitute(let->name, let->value, let->body)) : IRMutator::visit(let);
}

Expr LoadedCode::visit(const Variable *variable) {
    const auto found = types_.find(variable->name);
    return found == types_.end() ? Expr(variable) : call(Int(32), found->second, {});
}

Expr LoadedCode::visit(const Cast *cast) {
    const auto *half = cast->value.as<Reinterpret>();
    if (half && is_float16(cast->value) && cast->type == Float(32)) {
        return call(Float(32), loaded_code::kFloat16Value, {mutate(half->value)});
    }
    return IRMutator::visit(cast);
}

Expr LoadedCode::visit(const Reinterpret *bits) {
    const auto *half = bits->value.as<Cast>();
    if (half && is_float16(bits->value) && half->value.type() == Float(32)) {
        return call(UInt(16), loaded_code::kFloat16Bits, {mutate(half->value)});
    }
    return IRMutator::visit(bits);
}

}  // namespace hattn::schedules::gpu
