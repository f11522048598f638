// What lowering passes do with statements.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "Halide.h"

namespace hattn::schedules {

// The lets around a statement substituted into it.
inline Halide::Internal::Stmt without_lets(const Halide::Internal::Stmt &statement) {
    const auto *let = statement.as<Halide::Internal::LetStmt>();
    return let ? without_lets(substitute(let->name, let->value, let->body)) : statement;
}

// The statement around which there are nothing but lets, which are substituted, conditions and marks of consumers.
inline Halide::Internal::Stmt core_of(const Halide::Internal::Stmt &statement) {
    const Halide::Internal::Stmt inner = without_lets(statement);
    if (const auto *stage = inner.as<Halide::Internal::ProducerConsumer>()) {
        return core_of(stage->body);
    }
    const auto *condition = inner.as<Halide::Internal::IfThenElse>();
    return condition && !condition->else_case.defined() ? core_of(condition->then_case) : inner;
}

// An array allocated as it was, for another statement.
inline Halide::Internal::Stmt allocated_for(const Halide::Internal::Allocate *array,
                                            const Halide::Internal::Stmt &body) {
    return Halide::Internal::Allocate::make(array->name, array->type, array->memory_type, array->extents,
                                            array->condition, body, array->new_expr, array->free_function,
                                            array->padding);
}

// Those of a block, which Halide nests on one side alone.
inline std::vector<Halide::Internal::Stmt> statements_of(Halide::Internal::Stmt statement) {
    std::vector<Halide::Internal::Stmt> all;
    for (const Halide::Internal::Block *block; (block = statement.as<Halide::Internal::Block>());
         statement = block->rest) {
        all.push_back(block->first);
    }
    all.push_back(statement);
    return all;
}

// Whether an expression or a statement loads from an array.
template<typename T>
bool loads_from(const T &code, const std::string &array) {
    class Loads : public Halide::Internal::IRVisitor {
    public:
        explicit Loads(const std::string &array) : array_(array) {}
        bool any = false;

    private:
        using IRVisitor::visit;

        void visit(const Halide::Internal::Load *load) override {
            any = any || load->name == array_;
            IRVisitor::visit(load);
        }

        const std::string &array_;
    };
    Loads loads(array);
    code.accept(&loads);
    return loads.any;
}

// Whether a statement stores in an array.
inline bool stores_in(const Halide::Internal::Stmt &statement, const std::string &array) {
    class Stores : public Halide::Internal::IRVisitor {
    public:
        explicit Stores(const std::string &array) : array_(array) {}
        bool any = false;

    private:
        using IRVisitor::visit;

        void visit(const Halide::Internal::Store *store) override {
            any = any || store->name == array_;
        }

        const std::string &array_;
    };
    Stores stores(array);
    statement.accept(&stores);
    return stores.any;
}

// The first row that a vector of an array holds, in which so many rows lie side by side, again and again. Nothing if it
// is not known.
inline std::optional<int> first_row(const Halide::Expr &index, const Halide::Internal::ModulusRemainder &alignment,
                                    int rows) {
    const auto *ramp = index.as<Halide::Internal::Ramp>();
    if (!ramp) {
        return std::nullopt;
    }
    for (const auto &place : {alignment, Halide::Internal::modulus_remainder(ramp->base)}) {
        if (place.modulus % rows == 0) {
            return static_cast<int>((place.remainder % rows + rows) % rows);
        }
    }
    return std::nullopt;
}

inline bool is_of_profiler(const Halide::Internal::Call *call) {
    return call && call->name.starts_with("halide_profiler_");
}

// What Halide's profiler puts between stages.
inline bool is_profiling(const Halide::Internal::Stmt &statement) {
    const auto *evaluate = statement.as<Halide::Internal::Evaluate>();
    return evaluate && is_of_profiler(evaluate->value.as<Halide::Internal::Call>());
}

// Whether it does so anywhere in a statement.
inline bool is_profiled(const Halide::Internal::Stmt &statement) {
    class Profiling : public Halide::Internal::IRVisitor {
    public:
        bool any = false;

    private:
        using IRVisitor::visit;

        void visit(const Halide::Internal::Call *call) override {
            any = any || is_of_profiler(call);
            IRVisitor::visit(call);
        }
    };
    Profiling profiling;
    statement.accept(&profiling);
    return profiling.any;
}

// Values under names of their own, lest an expression that is used twice is computed twice.
class NamedValues {
public:
    Halide::Expr operator()(const Halide::Expr &value) {
        values_.emplace_back(Halide::Internal::unique_name("named"), value);
        return Halide::Internal::Variable::make(value.type(), values_.back().first);
    }

    Halide::Internal::Stmt around(Halide::Internal::Stmt body) const {
        for (auto value = values_.rbegin(); value != values_.rend(); ++value) {
            body = Halide::Internal::LetStmt::make(value->first, value->second, body);
        }
        return body;
    }

private:
    std::vector<std::pair<std::string, Halide::Expr>> values_;
};

}  // namespace hattn::schedules
