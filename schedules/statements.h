// What lowering passes do with statements.
#pragma once

#include "Halide.h"

namespace hattn::schedules {

// The lets around a statement substituted into it.
inline Halide::Internal::Stmt without_lets(const Halide::Internal::Stmt &statement) {
    const auto *let = statement.as<Halide::Internal::LetStmt>();
    return let ? without_lets(substitute(let->name, let->value, let->body)) : statement;
}

}  // namespace hattn::schedules
