#include "typed_output.h"

#include "generators/number_formats.h"
#include "hattn/hattn.h"

namespace hattn::schedules::gpu {

using namespace Halide;
using namespace Halide::Internal;

Stmt TypedOutput::visit(const Store *store) {
    if (store->name != output_ || store->value.type().is_vector()) {
        return IRMutator::visit(store);
    }
    const std::string value_name = unique_name("stored_value"), index_name = unique_name("stored_index");
    Expr value = Variable::make(store->value.type(), value_name);
    Expr index = Variable::make(store->index.type(), index_name);
    const auto store_halves = [&](const Expr &bits) {
        return Store::make(storage_.halves.name(), bits, index, storage_.halves.parameter(), const_true(),
                           ModulusRemainder());
    };
    Stmt floats = Store::make(store->name, value, index, store->param, const_true(), ModulusRemainder());
    Stmt halves = IfThenElse::make(storage_.type == HATTN_FLOAT16, store_halves(generators::float16_bits(value)),
                                   store_halves(generators::bfloat16_bits(value)));
    Stmt typed = IfThenElse::make(storage_.type == HATTN_FLOAT32, floats, halves);
    return LetStmt::make(index_name, store->index, LetStmt::make(value_name, store->value, typed));
}

}  // namespace hattn::schedules::gpu
